"""The policy as a pure function: what it takes, gives back, leaves alone and reports."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from umsh.fabric.policy import (
    ATTACK,
    DWELL_WINDOWS,
    HEALTHY_WINDOWS,
    RELEASE,
    Decision,
    FlowState,
    LinkMemory,
    LinkState,
    Snapshot,
    decide,
)

GB = 1e9
LINK = LinkState("d2h:0", 50 * GB)


def goal(projected_ms: float, target_ms: float = 40, priority: int = 0, rate: float = 10 * GB) -> FlowState:
    return FlowState(
        "kv", "d2h:0", priority, target_ms / 1e3, rate_bps=rate, age_s=0.01, remaining_nbytes=int(GB),
        backlog_nbytes=int(GB), projected_s=projected_ms / 1e3,
    )  # fmt: skip


def bulk(
    name: str = "offload",
    priority: int = 2,
    rate: float = 40 * GB,
    cap: float | None = None,
    keep: float = GB,
) -> FlowState:
    return FlowState(
        name, "d2h:0", priority, None, keep, rate_bps=rate, backlog_nbytes=int(GB), cap_bps=cap
    )  # fmt: skip


def judge(*flows: FlowState, link: LinkState = LINK, memory: LinkMemory | None = None) -> Decision:
    return decide(Snapshot((link,), flows, {} if memory is None else {link.name: memory}))


def test_a_missed_goal_on_a_full_link_takes_what_it_lacks_at_once() -> None:
    made = judge(goal(projected_ms=100), bulk())
    # 1 GB in the 30 ms left needs 33.3 GB/s, it has 10: 23.3 are lacking, more than a step of 12.5
    assert abs((made.caps["offload", "d2h:0"] or 0) - (40 - 23.3) * GB) < 0.1 * GB
    assert made.memory["d2h:0"].direction == ATTACK


def test_the_least_urgent_flow_pays_first_and_keeps_its_guarantee() -> None:
    made = judge(
        goal(100), bulk("offload", 2, 20 * GB, keep=2 * GB), bulk("weights", 1, 20 * GB, keep=5 * GB)
    )
    assert made.caps["offload", "d2h:0"] == 2 * GB
    weights = made.caps["weights", "d2h:0"]
    assert weights is not None
    assert 5 * GB <= weights < 20 * GB


def test_a_more_urgent_class_never_pays() -> None:
    made = judge(goal(100, priority=1), bulk("control", priority=0))
    assert not made.caps
    assert "kv" in made.infeasible


def test_a_missed_goal_on_an_idle_link_is_no_matter_of_bandwidth() -> None:
    idle = bulk(rate=0.0)._replace(backlog_nbytes=0)
    made = judge(goal(100, rate=5 * GB), idle)
    assert not made.caps
    assert "not full" in made.reasons["d2h:0"]


def test_a_goal_that_cannot_be_met_is_reported_with_the_figures() -> None:
    made = judge(goal(100)._replace(remaining_nbytes=int(5 * GB)), bulk())
    assert "needs" in made.infeasible["kv"]
    late = judge(goal(100)._replace(age_s=0.05), bulk())
    assert "already passed" in late.infeasible["kv"]


def test_release_is_slow_and_only_after_healthy_windows() -> None:
    memory = LinkMemory(healthy_windows=0, since_move_windows=99, direction=ATTACK)
    for window in range(HEALTHY_WINDOWS + 1):
        made = judge(goal(10), bulk(rate=5 * GB, cap=5 * GB), memory=memory)
        memory = made.memory["d2h:0"]
        if window < HEALTHY_WINDOWS - 1:
            assert not made.caps
    assert memory.direction == RELEASE
    assert made.caps["offload", "d2h:0"] == 7.5 * GB


def test_between_healthy_and_missed_nothing_moves() -> None:
    memory = LinkMemory(healthy_windows=50, since_move_windows=50, direction=ATTACK)
    made = judge(goal(36), bulk(cap=5 * GB), memory=memory)  # 90 % of the target
    assert not made.caps
    assert made.memory["d2h:0"].healthy_windows == 0


def test_turning_round_waits_for_the_dwell() -> None:
    just_released = LinkMemory(healthy_windows=9, since_move_windows=0, direction=RELEASE)
    assert not judge(goal(100), bulk(cap=20 * GB), memory=just_released).caps
    dwelt = just_released._replace(since_move_windows=DWELL_WINDOWS)
    assert judge(goal(100), bulk(cap=20 * GB), memory=dwelt).caps


def test_foreign_traffic_shrinks_what_can_be_promised() -> None:
    need = goal(100)._replace(remaining_nbytes=int(1.2 * GB))  # 40 GB/s in the 30 ms left
    assert "kv" not in judge(need, bulk()).infeasible
    assert "kv" in judge(need, bulk(), link=LINK._replace(foreign_bps=20 * GB)).infeasible


flow_states = st.builds(
    FlowState,
    name=st.sampled_from("abcdef"),
    link=st.just("d2h:0"),
    priority=st.integers(0, 3),
    target_s=st.none() | st.floats(0.001, 1),
    guarantee_bps=st.floats(0, 10 * GB),
    rate_bps=st.floats(0, 60 * GB),
    backlog_nbytes=st.integers(0, 10**10),
    age_s=st.floats(0, 2),
    remaining_nbytes=st.integers(0, 10**10),
    projected_s=st.none() | st.floats(0, 5) | st.just(float("inf")),
    cap_bps=st.none() | st.floats(0, 50 * GB),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(flow_states, max_size=6, unique_by=lambda f: f.name), st.integers(-1, 1), st.integers(0, 9))
def test_any_decision_keeps_guarantees_and_never_raises_a_cap_in_an_attack(
    flows: list[FlowState], direction: int, since: int
) -> None:
    memory = LinkMemory(5, since, direction)
    made = judge(*flows, memory=memory)
    assert made == judge(*flows, memory=memory), "pure"
    by_name = {flow.name: flow for flow in flows}
    after = made.memory["d2h:0"]
    for (name, _), cap in made.caps.items():
        flow = by_name[name]
        if after.direction == ATTACK:
            assert cap is not None
            assert cap >= flow.guarantee_bps - 1
            assert flow.cap_bps is None or cap <= flow.cap_bps
        else:
            assert flow.cap_bps is not None
            assert cap is None or cap > flow.cap_bps
    if made.caps and after.direction != direction and direction != 0:
        assert since >= DWELL_WINDOWS


@settings(max_examples=30, deadline=None)
@given(st.floats(2 * GB, 45 * GB), st.floats(0.005, 0.2))
def test_a_step_load_ends_in_at_most_one_turn(need_bps: float, target_s: float) -> None:
    """A self-copying flow that slows down with what the offload takes: attack, then creep back, then hold."""
    memory: dict[str, LinkMemory] = {}
    cap: float | None = None
    for _ in range(300):
        offload = min(50 * GB, 50 * GB if cap is None else cap)
        got = max(1.0, 50 * GB - offload) if offload + need_bps > 50 * GB else need_bps
        flow = FlowState(
            "kv", "d2h:0", 0, target_s, rate_bps=got, projected_s=0.79 * target_s * need_bps / got
        )  # fmt: skip
        made = decide(Snapshot((LINK,), (flow, bulk(rate=offload, cap=cap)), memory))
        memory = made.memory
        cap = made.caps.get(("offload", "d2h:0"), cap)
    assert memory["d2h:0"].direction_changes <= 1
