"""One link at work: submits what its pacer grants to the link's one copy stream, reaps what has landed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from umsh.fabric.backend import Backend, Event, Stream
from umsh.fabric.link import parse
from umsh.fabric.pacer import Grant, Pacer
from umsh.fabric.queue import Queue
from umsh.fabric.transfer import DONE, Transfer

if TYPE_CHECKING:
    from umsh.fabric.flow import Flow


class _InFlight(NamedTuple):
    queue: Queue
    transfer: Transfer
    nbytes: int
    event: Event


class Front(NamedTuple):
    """What to poll next, and from when on."""

    event: Event
    expected_s: float


class _Yielded(NamedTuple):
    """Bytes that somebody else copies after a checkpoint: the link counts as taken until `due_s`."""

    queue: Queue
    nbytes: int
    due_s: float


class LinkEngine:
    """All flows of one link share one stream here: a second stream would be starved or starve
    (docs/fabric.md)."""

    def __init__(self, backend: Backend, name: str, pacer: Pacer, stream: Stream) -> None:
        self.backend, self.name, self.pacer, self.stream = backend, name, pacer, stream
        self.link = parse(name)
        self.queues: dict[str, Queue] = {}
        self.in_flight: deque[_InFlight] = deque()
        self.held = 0
        self.gated = False
        """True while the last fill met a transfer whose producer is still at work: worth polling for."""
        self.wake_s: float | None = None
        self._yielded: list[_Yielded] = []
        self._now_s = self._front_s = 0.0

    def queue_of(self, flow: Flow) -> Queue:
        if flow.name not in self.queues:
            self.queues[flow.name] = queue = Queue(flow, self.name)
            self.pacer.queues.append(queue)
        return self.queues[flow.name]

    def step(self, now_s: float, grants_max: int) -> None:
        """Reap, then fill the window with at most `grants_max` chunks. Afterwards `wake_s` says when time
        alone allows more."""
        self._now_s, self.wake_s, self.gated = now_s, None, False
        self._reap(now_s)
        for _ in range(0 if self.held else grants_max):
            grant = self.pacer.next(now_s, self._ready)
            if grant is None:
                break
            self._submit(grant, now_s)
        if self.pacer.wake_s is not None:
            self._wake_at(self.pacer.wake_s)
        for yielded in self._yielded:
            self._wake_at(yielded.due_s)

    def front(self) -> Front | None:
        """The oldest chunk in flight, and when it should land at capacity; None when idle."""
        try:
            chunk = self.in_flight[0]
        except IndexError:  # another thread reaped it
            return None
        return Front(chunk.event, self._front_s + chunk.nbytes / self.pacer.capacity_bps)

    def drain(self) -> list[Transfer]:
        """Everything still queued, oldest first, taken out of the queues."""
        waiting = sorted((t for q in self.queues.values() for t in q.transfers()), key=lambda t: t.sequence)
        for queue in self.queues.values():
            queue.lanes.clear()
            queue.backlog_nbytes = 0
        return waiting

    def _wake_at(self, time_s: float) -> None:
        self.wake_s = time_s if self.wake_s is None else min(self.wake_s, time_s)

    def _ready(self, transfer: Transfer) -> bool:
        flow = transfer.flow
        if flow.not_before_s > self._now_s:
            self._wake_at(flow.not_before_s)
            return False
        if transfer.gate is None:
            return True
        if not self.backend.done(transfer.gate):
            self.gated = True
            return False
        self.backend.free_event(transfer.gate)
        transfer.gate, transfer.ready_s = None, self._now_s
        return True

    def _submit(self, grant: Grant, now_s: float) -> None:
        queue, transfer = grant.queue, grant.transfer
        segments = transfer.take(grant.nbytes)
        nbytes = sum(segments.sizes)
        if transfer.started_s is None:
            transfer.started_s = now_s
        if not nbytes:  # nothing to move: only the order was wanted
            queue.leave(transfer)
            transfer.finish(DONE, now_s)
            return
        if transfer.yields:
            queue.outside_s = now_s
            self._yielded.append(_Yielded(queue, nbytes, now_s + nbytes / self.pacer.capacity_bps))
            transfer.completed_nbytes += nbytes
        else:
            self.backend.copy(self.name, self.stream, segments)
            event = self.backend.record(self.stream)
            transfer.in_flight += 1
            transfer.last_event = event
            if not self.in_flight:
                self._front_s = now_s
            self.in_flight.append(_InFlight(queue, transfer, nbytes, event))
        self.pacer.sent(grant, nbytes, now_s)
        if transfer.remaining_nbytes == 0:
            queue.leave(transfer)
            if transfer.yields:
                transfer.finish(DONE, now_s)

    def _reap(self, now_s: float) -> None:
        while self.in_flight and self.backend.done(self.in_flight[0].event):
            queue, transfer, nbytes, event = self.in_flight.popleft()
            self._front_s = now_s
            self.pacer.landed(queue, nbytes, now_s)
            transfer.completed_nbytes += nbytes
            transfer.in_flight -= 1
            if transfer.completed_nbytes == transfer.nbytes:
                transfer.finish(DONE, now_s)
                queue.note_latency(transfer, now_s)
            elif transfer.cancelling and not transfer.in_flight:
                transfer.finish(transfer.cancelling, now_s)
            self.backend.free_event(event)
        due = [yielded for yielded in self._yielded if yielded.due_s <= now_s]
        for yielded in due:
            self._yielded.remove(yielded)
            self.pacer.landed(yielded.queue, yielded.nbytes, now_s)
