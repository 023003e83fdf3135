"""One flow's transfers on one link: who is next, and the flow's credit, tokens and counts there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from umsh.fabric.transfer import Transfer

if TYPE_CHECKING:
    from umsh.fabric.flow import Flow

Ready = Callable[[Transfer], bool]


class Queue:
    """Transfers wait in one lane per caller's stream.

    Lanes keep what a stream promises (first in, first out) and no more: a transfer whose producer never
    finishes holds back its own stream's copies, not the flow's others. Among ready heads the oldest goes
    first.
    """

    def __init__(self, flow: Flow, link: str) -> None:
        self.flow, self.link = flow, link
        self.lanes: dict[int, deque[Transfer]] = {}
        self.backlog_nbytes = 0
        self.served_nbytes = 0
        self.window_nbytes = 0
        self.rate_bps = 0.0
        self.deficit_nbytes = 0
        self.credit_nbytes = 0.0
        self.tokens_nbytes = 0.0
        self.cap_bps: float | None = None
        self.was_ready = False
        self.last_active_s = float("-inf")
        self.outside_s = float("-inf")
        """When the flow last copied by itself, past the pacer (`checkpoint`, `report`)."""
        self.last_latency_s: float | None = None
        self.last_latency_at_s = float("-inf")

    def add(self, transfer: Transfer) -> None:
        self.lanes.setdefault(transfer.lane, deque()).append(transfer)
        self.backlog_nbytes += transfer.remaining_nbytes

    def remove(self, transfer: Transfer) -> None:
        lane = self.lanes.get(transfer.lane)
        if lane is not None and transfer in lane:
            lane.remove(transfer)
            self.backlog_nbytes -= transfer.remaining_nbytes
            if not lane:
                del self.lanes[transfer.lane]

    def leave(self, transfer: Transfer) -> None:
        """Take out a head that has been submitted whole."""
        lane = self.lanes[transfer.lane]
        lane.popleft()
        if not lane:
            del self.lanes[transfer.lane]

    def note_latency(self, transfer: Transfer, now_s: float) -> None:
        """Remember how long a finished transfer took, for the policy and for `stats`."""
        if transfer.latency_s is not None and not transfer.part:
            self.last_latency_s, self.last_latency_at_s = transfer.latency_s, now_s
            self.flow.note_latency(transfer.latency_s)

    def head(self, ready: Ready) -> Transfer | None:
        """The oldest transfer that may send now."""
        best: Transfer | None = None
        for lane in self.lanes.values():
            transfer = lane[0]
            if (best is None or transfer.sequence < best.sequence) and ready(transfer):
                best = transfer
        return best

    def transfers(self) -> list[Transfer]:
        return sorted((t for lane in self.lanes.values() for t in lane), key=lambda t: t.sequence)

    def guarantee(self, capacity_bps: float) -> tuple[float, float]:
        """Guaranteed bytes/s, and how many bytes may be owed before it overrides the classes."""
        flow = self.flow
        floor, least = flow.floor * capacity_bps, flow.min_gbps * 1e9
        if least >= floor:
            return least, 0.0
        return floor, floor * flow.floor_horizon_s
