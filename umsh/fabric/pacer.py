"""Choose the next chunk of a link: guarantees, strict classes, deficit round robin, caps, a byte window.

The pacer imports no driver and reads no clock. A copy engine serves what is ready, stays with its stream and
knows no priority, so order must be made before the hardware queue and that queue kept two chunks short.
Deficit round robin: Shreedhar and Varghese, SIGCOMM 1995. A guarantee is a latency-rate server (Stiliadis and
Varma, 1998): after being backlogged for its horizon a flow is served at its rate or more.
"""

from __future__ import annotations

from typing import NamedTuple

from umsh.fabric.queue import Queue, Ready
from umsh.fabric.transfer import Transfer

MIB = 1 << 20
CHUNK_NBYTES = 8 * MIB
CHUNKS_ALONE = 4
"""Chunks are this many times larger while no other flow could be kept waiting by them."""
WINDOW_CHUNKS = 2
SMALL_SHARE = 8
"""The window is two chunks and this fraction of one, so that a small copy does not cost a chunk its place."""
IN_FLIGHT_MAX = 16
"""Small copies share the byte window; this bounds their number."""
ACTIVE_S = 1.0
"""A flow counts as active on a link for this long after its last byte, for chunk sizes."""
PROTECT_S = 0.02
"""Caps bind for this long (two policy windows) after a flow with a goal last copied past the pacer."""
ACCRUE_S_MIN = 0.2e-3
"""Credit and tokens are counted no more often than this."""
ACCRUE_S_MAX = 0.1
"""Most time credited in one step, so that a suspended machine or a clock jump lends no burst."""


def window_nbytes(chunk_nbytes: int) -> int:
    """Most bytes in flight on a link whose chunks have `chunk_nbytes`."""
    return WINDOW_CHUNKS * chunk_nbytes + chunk_nbytes // SMALL_SHARE


class Grant(NamedTuple):
    """What to submit next: at most `nbytes` of the head transfer of `queue`."""

    queue: Queue
    transfer: Transfer
    nbytes: int


class Pacer:
    """State of one link's queue. `capacity_bps` is bytes/s; all times are seconds of the caller's clock."""

    def __init__(self, capacity_bps: float, chunk_nbytes: int = CHUNK_NBYTES) -> None:
        self.capacity_bps = capacity_bps
        self.chunk_nbytes = chunk_nbytes
        self.chunk_nbytes_alone = CHUNKS_ALONE * chunk_nbytes
        self.queues: list[Queue] = []
        self.in_flight_nbytes = self.in_flight = 0
        self.wake_s: float | None = None
        self._turn = 0
        self._accrued_s: float | None = None

    def next(self, now_s: float, ready: Ready) -> Grant | None:
        """The chunk to submit now. None when the window is full or nothing may go; then `wake_s` says when a
        cap next allows something (None: only an event or a call can change that)."""
        self.wake_s = None
        self._accrue_all(now_s)
        if self.in_flight >= IN_FLIGHT_MAX:
            return None
        heads = self._heads(ready)
        if not heads:
            return None
        queue = self._choose(now_s, heads)
        if queue is None:
            return None
        transfer = heads[queue]
        limit = self._limit(now_s, queue)
        nbytes = min(limit, transfer.remaining_nbytes)
        if self.in_flight > 1 and self.in_flight_nbytes + nbytes > window_nbytes(limit):
            return None
        return Grant(queue, transfer, nbytes)

    def sent(self, grant: Grant, nbytes: int, now_s: float) -> None:
        """Account for `nbytes` submitted of `grant` (fewer than granted when its pieces are many)."""
        queue = grant.queue
        queue.backlog_nbytes -= nbytes
        queue.last_active_s = now_s
        self._take_turn(queue, nbytes)
        queue.tokens_nbytes -= nbytes
        queue.credit_nbytes = max(queue.credit_nbytes - nbytes, -float(self.chunk_nbytes))
        self.in_flight += 1
        self.in_flight_nbytes += nbytes

    def landed(self, queue: Queue, nbytes: int, now_s: float) -> None:
        """Account for a chunk that has arrived."""
        queue.served_nbytes += nbytes
        queue.window_nbytes += nbytes
        queue.last_active_s = now_s
        self.in_flight -= 1
        self.in_flight_nbytes -= nbytes

    def protected(self, now_s: float, besides: Queue) -> bool:
        """True while a flow with a goal, other than `besides`, is active: only then do caps bind."""
        return any(
            queue is not besides
            and queue.flow.has_goal
            and (queue.backlog_nbytes > 0 or now_s - queue.outside_s < PROTECT_S)
            for queue in self.queues
        )

    def _accrue_all(self, now_s: float) -> None:
        elapsed = 0.0 if self._accrued_s is None else now_s - self._accrued_s
        if 0.0 < elapsed < ACCRUE_S_MIN:
            return
        self._accrued_s = now_s
        elapsed = min(max(elapsed, 0.0), ACCRUE_S_MAX)
        for queue in self.queues:
            self._accrue(queue, now_s, elapsed)

    def _heads(self, ready: Ready) -> dict[Queue, Transfer]:
        heads = {}
        for queue in self.queues:
            head = None
            if queue.lanes and not queue.flow.paused:
                head = queue.head(ready)
            queue.was_ready = head is not None
            if head is not None:
                heads[queue] = head
            elif not queue.lanes:
                queue.deficit_nbytes = 0
        return heads

    def _accrue(self, queue: Queue, now_s: float, elapsed_s: float) -> None:
        limit = self._cap(now_s, queue)
        if limit is None:
            queue.tokens_nbytes = 0.0
        else:
            queue.tokens_nbytes = min(float(self.chunk_nbytes), queue.tokens_nbytes + limit * elapsed_s)
        rate, owed = queue.guarantee(self.capacity_bps)
        if not rate:
            return
        if queue.was_ready:
            most = owed + 2 * self.chunk_nbytes + rate * ACCRUE_S_MAX
            queue.credit_nbytes = min(most, queue.credit_nbytes + rate * elapsed_s)
        elif queue.credit_nbytes > 0:
            queue.credit_nbytes = 0.0

    def _choose(self, now_s: float, heads: dict[Queue, Transfer]) -> Queue | None:
        if len(heads) == 1:
            (only,) = heads
            if only.cap_bps is None and only.flow.max_gbps is None:
                return only
        owed = [queue for queue in heads if self._is_owed(queue)]
        if owed:
            return min(owed, key=lambda queue: (queue.flow.priority, -queue.credit_nbytes))
        free, wakes = [], []
        for queue in heads:
            cap = self._cap(now_s, queue)
            if cap is None or queue.tokens_nbytes >= 0:
                free.append(queue)
            elif cap > 0:
                wakes.append(now_s - queue.tokens_nbytes / cap)
        if not free:
            self.wake_s = min([*wakes, now_s + PROTECT_S])
            return None
        most_urgent = min(queue.flow.priority for queue in free)
        return self._round_robin(
            [queue for queue in free if queue.flow.priority == most_urgent], heads, now_s
        )

    def _cap(self, now_s: float, queue: Queue) -> float | None:
        """Bytes/s that bind now: the flow's own limit, and the policy's while a goal is to be protected."""
        caps = [] if queue.flow.max_gbps is None else [queue.flow.max_gbps * 1e9]
        if queue.cap_bps is not None and self.protected(now_s, queue):
            caps.append(queue.cap_bps)
        return min(caps, default=None)

    def _is_owed(self, queue: Queue) -> bool:
        rate, owed = queue.guarantee(self.capacity_bps)
        return rate > 0 and queue.credit_nbytes >= owed and queue.credit_nbytes > 0

    def _round_robin(self, free: list[Queue], heads: dict[Queue, Transfer], now_s: float) -> Queue:
        """The queue whose turn it is; keeps its turn while its deficit pays for the head."""
        if len(free) == 1:
            return free[0]
        by_index = {self.queues.index(queue): queue for queue in free}
        current = by_index.get(self._turn % len(self.queues))
        if current is not None:
            need = min(self._limit(now_s, current), heads[current].remaining_nbytes)
            if current.deficit_nbytes >= need:
                return current
        after = [(index - self._turn - 1) % len(self.queues) for index in by_index]
        return by_index[(min(after) + self._turn + 1) % len(self.queues)]

    def _take_turn(self, queue: Queue, nbytes: int) -> None:
        index = self.queues.index(queue)
        if index != self._turn or queue.deficit_nbytes < nbytes:
            self._turn = index
            queue.deficit_nbytes += self.chunk_nbytes
        queue.deficit_nbytes = max(0, queue.deficit_nbytes - nbytes)

    def _limit(self, now_s: float, queue: Queue) -> int:
        """Small chunks while another flow of the same or a more urgent class is active, else large ones."""
        for other in self.queues:
            if (
                other is not queue
                and other.flow.priority <= queue.flow.priority
                and (other.backlog_nbytes > 0 or now_s - other.last_active_s < ACTIVE_S)
            ):
                return self.chunk_nbytes
        return self.chunk_nbytes_alone
