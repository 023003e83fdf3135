"""Processor sharing in virtual time: all jobs of a pool slow down alike, so a heap of finishes suffices."""

from __future__ import annotations

import heapq
from typing import Any


class Pool:
    """Jobs that advance at rate 1/factor each (equation 4 slows every task of a resource alike).

    `virtual` advances at 1/factor; a job with r standalone seconds ends when `virtual` has grown by r.
    `version` counts changes, so that an event scheduled before a change is recognised as stale.
    """

    __slots__ = ("at_s", "factor", "heap", "version", "virtual")

    def __init__(self) -> None:
        self.at_s = 0.0
        self.virtual = 0.0
        self.factor = 1.0
        self.heap: list[tuple[float, int, Any]] = []
        self.version = 0

    def advance(self, now_s: float) -> None:
        """Bring the virtual time to `now_s` under the factor so far."""
        self.virtual += (now_s - self.at_s) / self.factor
        self.at_s = now_s

    def add(self, order: int, job: Any, left_s: float) -> float:
        """Put a job in after `advance`; returns its virtual finish."""
        finish = self.virtual + left_s
        heapq.heappush(self.heap, (finish, order, job))
        return finish

    def pop(self) -> Any:
        """Take out the job that ends first."""
        finish, _, job = heapq.heappop(self.heap)
        # The event's time was rounded; take the exact finish so that no job is left a hair short.
        self.virtual = max(self.virtual, finish)
        return job

    def remove(self, job: Any) -> None:
        """Drop one job before its end."""
        self.heap = [entry for entry in self.heap if entry[2] is not job]
        heapq.heapify(self.heap)

    def next_s(self) -> float:
        """When the first job ends if nothing changes; infinite if the pool is empty."""
        if not self.heap:
            return float("inf")
        return self.at_s + max(0.0, self.heap[0][0] - self.virtual) * self.factor
