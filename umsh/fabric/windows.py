"""The policy's clock: every window, turn queue counters into a snapshot, decide, put the caps in force."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from umsh.fabric.policy import Decision, FlowState, LinkMemory, LinkState, Snapshot, decide

if TYPE_CHECKING:
    from umsh.fabric.link_engine import LinkEngine
    from umsh.fabric.queue import Queue

WINDOW_S = 0.01
FRESH_WINDOWS = 2
"""A finished transfer's latency speaks for its flow this many windows."""


class Move(NamedTuple):
    """One thing the policy said, for `explain`."""

    now_s: float
    link: str
    text: str


Foreign = Callable[[str], float]


class Windows:
    """Runs `policy.decide` while some flow on some link has a goal and anything to do."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self.memory: Mapping[str, LinkMemory] = {}
        self.infeasible: dict[str, str] = {}
        self.moves: deque[Move] = deque(maxlen=256)
        self.on_budget: Callable[[str, str, float | None], None] | None = None
        self.foreign_bps: Foreign = lambda link: 0.0
        self._started_s: float | None = None

    def run_if_due(self, now_s: float, engines: Mapping[str, LinkEngine]) -> float | None:
        """Run a window if one has passed; returns when the next is due, None while no goal is active."""
        if self._started_s is not None and self._started_s <= now_s < self._started_s + self.window_s:
            return self._started_s + self.window_s
        if not any(_has_work(engine) for engine in engines.values()):
            self._started_s = None
            return None
        if self._started_s is None or now_s < self._started_s:  # first work, or a clock that jumped back
            self._start(now_s, engines)
        elif now_s - self._started_s >= self.window_s:
            self._run(now_s, now_s - self._started_s, engines)
            self._start(now_s, engines)
        assert self._started_s is not None
        return self._started_s + self.window_s

    def _start(self, now_s: float, engines: Mapping[str, LinkEngine]) -> None:
        self._started_s = now_s
        for engine in engines.values():
            for queue in engine.queues.values():
                queue.window_nbytes = 0

    def _run(self, now_s: float, elapsed_s: float, engines: Mapping[str, LinkEngine]) -> None:
        decision = decide(self.snapshot(now_s, elapsed_s, engines))
        self.memory = decision.memory
        self._apply(now_s, decision, engines)

    def snapshot(self, now_s: float, elapsed_s: float, engines: Mapping[str, LinkEngine]) -> Snapshot:
        """What `decide` may know after a window of `elapsed_s`."""
        links, flows = [], []
        for name, engine in engines.items():
            capacity = engine.pacer.capacity_bps
            links.append(LinkState(name, capacity, self.foreign_bps(name)))
            fresh_s = now_s - FRESH_WINDOWS * self.window_s
            flows += [
                flow_state(queue, capacity, now_s, elapsed_s, fresh_s) for queue in engine.queues.values()
            ]
        return Snapshot(tuple(links), tuple(flows), self.memory)

    def _apply(self, now_s: float, decision: Decision, engines: Mapping[str, LinkEngine]) -> None:
        for (flow, link), cap in decision.caps.items():
            queue = engines[link].queues[flow]
            queue.cap_bps = cap
            queue.tokens_nbytes = min(queue.tokens_nbytes, 0.0)
            if self.on_budget is not None:
                self.on_budget(flow, link, cap)
        for link, text in decision.reasons.items():
            self.moves.append(Move(now_s, link, text))
        self.infeasible = decision.infeasible


def _has_work(engine: LinkEngine) -> bool:
    return any(queue.flow.target_ms is not None for queue in engine.queues.values()) and (
        bool(engine.in_flight) or any(queue.lanes for queue in engine.queues.values())
    )


def flow_state(
    queue: Queue, capacity_bps: float, now_s: float, elapsed_s: float, fresh_s: float
) -> FlowState:
    """One queue as the policy sees it, judged by its oldest transfer, else by the last finished."""
    flow = queue.flow
    queue.rate_bps = queue.window_nbytes / elapsed_s if elapsed_s > 0 else 0.0
    target_s = None if flow.target_ms is None else flow.target_ms / 1e3
    age_s, remaining, projected = 0.0, 0, None
    if target_s is not None:
        oldest = min((lane[0] for lane in queue.lanes.values()), key=lambda t: t.sequence, default=None)
        if oldest is not None and oldest.ready_s is not None:
            age_s = now_s - oldest.ready_s
            remaining = oldest.nbytes - oldest.completed_nbytes
            projected = _projected_s(age_s, remaining, queue.rate_bps, capacity_bps, elapsed_s)
        elif queue.last_latency_s is not None and queue.last_latency_at_s >= fresh_s:
            projected = queue.last_latency_s
    return FlowState(
        name=flow.name,
        link=queue.link,
        priority=flow.priority,
        target_s=target_s,
        guarantee_bps=queue.guarantee(capacity_bps)[0],
        rate_bps=queue.rate_bps,
        backlog_nbytes=queue.backlog_nbytes,
        age_s=age_s,
        remaining_nbytes=remaining,
        projected_s=projected,
        cap_bps=queue.cap_bps,
    )


def _projected_s(
    age_s: float, remaining: int, rate_bps: float, capacity_bps: float, elapsed_s: float
) -> float:
    """When the transfer will be done at the rate it gets; one younger than a window is judged at capacity."""
    rate = capacity_bps if age_s < elapsed_s else rate_bps
    return age_s + remaining / rate if rate > 0 else float("inf")
