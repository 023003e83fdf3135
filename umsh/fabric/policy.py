"""Decide, once a window, which flows are capped so that flows with a goal meet it: a pure function.

The pacer already serves more urgent classes first, so caps are needed only where that is not enough: traffic
that does not pass our queue, flows of the same class, or a goal in a class below the one that takes the link.
A cap binds only while a flow with a goal is active (the pacer lends idle bandwidth at once), so it may stay
in place between phases: what one phase taught, the next starts with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

STEP = 0.25
"""Least share of a link taken in one attack."""
GIVE_BACK = 0.05
"""Share of a link given back in one release."""
HEALTHY_BELOW = 0.8
"""A goal is healthy below this share of its target; between this and 1 nothing moves."""
HEALTHY_WINDOWS = 3
DWELL_WINDOWS = 2
SATURATED_ABOVE = 0.9
CEILING_WINDOWS = 500
"""How long a rate at which a goal was missed is not tried again."""

ATTACK, HOLD, RELEASE = -1, 0, 1


class FlowState(NamedTuple):
    """One flow on one link, as the last window saw it; rates in bytes/s, times in seconds."""

    name: str
    link: str
    priority: int
    target_s: float | None = None
    guarantee_bps: float = 0.0
    rate_bps: float = 0.0
    backlog_nbytes: int = 0
    age_s: float = 0.0
    remaining_nbytes: int = 0
    projected_s: float | None = None
    cap_bps: float | None = None


class LinkState(NamedTuple):
    """One link: what it carries and what of that is not ours, in bytes/s."""

    name: str
    capacity_bps: float
    foreign_bps: float = 0.0


class LinkMemory(NamedTuple):
    """What `decide` remembers of one link from window to window."""

    healthy_windows: int = 0
    since_move_windows: int = DWELL_WINDOWS
    direction: int = HOLD
    direction_changes: int = 0
    ceiling_bps: float = float("inf")
    """What the capped flows carried when a goal was last missed: releases stay a step below it."""


class Snapshot(NamedTuple):
    """Everything `decide` may look at."""

    links: tuple[LinkState, ...]
    flows: tuple[FlowState, ...]
    memory: Mapping[str, LinkMemory]


class Decision(NamedTuple):
    """New caps by (flow, link), in bytes/s, None for uncapped; flows not named keep theirs."""

    caps: dict[tuple[str, str], float | None]
    infeasible: dict[str, str]
    reasons: dict[str, str]
    memory: dict[str, LinkMemory]


def decide(snapshot: Snapshot) -> Decision:
    """Caps for the next window.

    Attacks at once when an active goal is missed on a saturated link, taking what the goal lacks and at least
    `STEP` of the link from the least urgent flows, never below their guarantees and never from a class more
    urgent than the one that misses. Releases `GIVE_BACK` a window after `HEALTHY_WINDOWS` healthy ones. Two
    moves in opposite directions are at least `DWELL_WINDOWS` apart. A goal that cannot be met is reported,
    not chased.
    """
    by_link: dict[str, list[FlowState]] = {link.name: [] for link in snapshot.links}
    for flow in snapshot.flows:
        by_link[flow.link].append(flow)
    decision = Decision({}, {}, {}, {})
    for link in snapshot.links:
        memory = snapshot.memory.get(link.name, LinkMemory())
        decision.memory[link.name] = _decide_link(link, by_link[link.name], memory, decision)
    return decision


def _decide_link(
    link: LinkState, flows: list[FlowState], memory: LinkMemory, decision: Decision
) -> LinkMemory:
    missing: list[FlowState] = []
    healthy = True
    for flow in flows:
        projected_s, target_s = flow.projected_s, flow.target_s
        if projected_s is not None and target_s is not None and projected_s >= HEALTHY_BELOW * target_s:
            healthy = False
            if projected_s > target_s:
                missing.append(flow)
    usable = max(0.0, link.capacity_bps - link.foreign_bps)
    memory = memory._replace(
        healthy_windows=memory.healthy_windows + 1 if healthy else 0,
        since_move_windows=memory.since_move_windows + 1,
    )
    if memory.since_move_windows > CEILING_WINDOWS:
        memory = memory._replace(ceiling_bps=float("inf"))
    if missing:
        _report_infeasible(usable, flows, missing, decision)
        if not _saturated(link, flows, missing):
            decision.reasons[link.name] = (
                "a goal is missed but the link is not full: not a matter of bandwidth"
            )
        elif _may_turn(memory, ATTACK):
            return _attack(link, usable, flows, missing, memory, decision)
    elif memory.healthy_windows >= HEALTHY_WINDOWS and _may_turn(memory, RELEASE):
        return _release(link, usable, flows, memory, decision)
    return memory


def _saturated(link: LinkState, flows: list[FlowState], missing: list[FlowState]) -> bool:
    carried = link.foreign_bps + sum(flow.rate_bps for flow in flows)
    waiting = any(flow.backlog_nbytes > 0 and flow not in missing for flow in flows)
    return waiting or carried > SATURATED_ABOVE * link.capacity_bps


def _needed_bps(flow: FlowState, usable: float) -> float:
    """The rate at which the oldest transfer would still meet its goal; the whole link once it cannot."""
    assert flow.target_s is not None
    left_s = flow.target_s - flow.age_s
    if flow.remaining_nbytes == 0:  # a goal reported from outside: scale the rate by how far it missed
        return min(usable, flow.rate_bps * (flow.projected_s or 0.0) / flow.target_s)
    return min(usable, flow.remaining_nbytes / left_s) if left_s > 0 else usable


def _report_infeasible(
    usable: float, flows: list[FlowState], missing: list[FlowState], decision: Decision
) -> None:
    kept_all = sum(flow.guarantee_bps for flow in flows if flow.backlog_nbytes)
    for flow in missing:
        kept = kept_all - (flow.guarantee_bps if flow.backlog_nbytes else 0.0)
        assert flow.target_s is not None
        left_s = flow.target_s - flow.age_s
        room = max(0.0, usable - kept)
        if left_s <= 0:
            decision.infeasible[flow.name] = f"the target of {flow.target_s * 1e3:.0f} ms has already passed"
        elif flow.remaining_nbytes > room * left_s:
            decision.infeasible[flow.name] = (
                f"needs {flow.remaining_nbytes / left_s / 1e9:.1f} GB/s, "
                f"{flow.link} has {room / 1e9:.1f} GB/s beside the guarantees of others"
            )


def _attack(
    link: LinkState,
    usable: float,
    flows: list[FlowState],
    missing: list[FlowState],
    memory: LinkMemory,
    decision: Decision,
) -> LinkMemory:
    lacking = sum(max(0.0, _needed_bps(flow, usable) - flow.rate_bps) for flow in missing)
    want = max(STEP * link.capacity_bps, lacking)
    names = {flow.name for flow in missing}
    most_urgent = min(flow.priority for flow in missing)
    victims = [
        flow
        for flow in flows
        if flow.name not in names
        and flow.priority >= most_urgent
        and (flow.target_s is None or flow.priority > most_urgent)
    ]
    victims.sort(key=lambda flow: (-flow.priority, flow.name))
    taken = carried = 0.0
    for victim in victims:
        now = min(victim.rate_bps, victim.cap_bps) if victim.cap_bps is not None else victim.rate_bps
        carried += now
        take = min(want - taken, now - victim.guarantee_bps)
        if take > 0:
            decision.caps[victim.name, link.name] = now - take
            taken += take
    who = ", ".join(sorted(names))
    if not taken:
        decision.reasons[link.name] = f"{who} missed its goal and nothing is left to take"
        for flow in missing:
            decision.infeasible.setdefault(flow.name, "every other flow is already at its guarantee")
        return memory
    decision.reasons[link.name] = f"{who} missed its goal: took {taken / 1e9:.1f} GB/s"
    return _moved(memory, ATTACK)._replace(ceiling_bps=min(memory.ceiling_bps, carried))


def _release(
    link: LinkState, usable: float, flows: list[FlowState], memory: LinkMemory, decision: Decision
) -> LinkMemory:
    """One step to the most urgent capped flow that had work, so that a cap nobody feels teaches nothing."""
    capped = [flow for flow in flows if flow.cap_bps is not None and flow.backlog_nbytes > 0]
    if not capped or not any(flow.projected_s is not None for flow in flows if flow.target_s is not None):
        return memory
    flow = min(capped, key=lambda flow: (flow.priority, flow.name))
    assert flow.cap_bps is not None
    step = GIVE_BACK * link.capacity_bps
    if sum(other.cap_bps or 0.0 for other in capped) + 2 * step > memory.ceiling_bps:
        return memory
    slack = max(0.0, usable - sum(other.rate_bps for other in flows))
    if not all(_bears(goal, max(0.0, step - slack)) for goal in flows if goal.projected_s is not None):
        return memory
    cap = flow.cap_bps + step
    decision.caps[flow.name, link.name] = None if cap >= usable else cap
    decision.reasons[link.name] = f"goals healthy: gave {flow.name} {step / 1e9:.1f} GB/s"
    return _moved(memory, RELEASE)


def _bears(goal: FlowState, loss_bps: float) -> bool:
    """True if the goal would still be met were all of `loss_bps` taken from it."""
    if goal.target_s is None or goal.projected_s is None or loss_bps == 0:
        return True
    left = goal.rate_bps - loss_bps
    return left > 0 and goal.projected_s * goal.rate_bps / left <= goal.target_s


def _may_turn(memory: LinkMemory, direction: int) -> bool:
    """Going on in one direction is free; turning round waits for the dwell."""
    return memory.direction in (HOLD, direction) or memory.since_move_windows > DWELL_WINDOWS


def _moved(memory: LinkMemory, direction: int) -> LinkMemory:
    changed = memory.direction not in (HOLD, direction)
    return memory._replace(
        since_move_windows=0,
        direction=direction,
        direction_changes=memory.direction_changes + changed,
    )
