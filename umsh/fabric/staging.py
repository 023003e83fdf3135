"""Pageable host memory: through a ring of pinned buffers, so that no copy turns synchronous on the link."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from umsh.errors import UmshError
from umsh.fabric.backend import Backend, Segments
from umsh.fabric.core import Core
from umsh.fabric.pieces import Pieces, plan
from umsh.fabric.transfer import DONE, FAILED, QUEUED, Transfer

STAGE_NBYTES = 8 << 20
STAGES = 3
"""One being filled by the CPU, two in the link's window."""

Run = Callable[[Callable[[], None]], object]


class Stager:
    """Splits a transfer into parts of one buffer each, sent as ordinary transfers of the same flow.

    `run` executes the CPU's copies away from the dispatcher; `kick` wakes the dispatcher after a submission.
    """

    def __init__(self, core: Core, run: Run, kick: Callable[[], None]) -> None:
        self.core, self._run, self._kick = core, run, kick
        self._backend: Backend = core.backend
        self._free: list[int] = []
        self._all: list[int] = []
        self._waiting: deque[tuple[Transfer, bool]] = deque()

    def start(self, transfer: Transfer, to_device: bool) -> None:
        """Stage `transfer`; its producer is waited for first, since the CPU reads the source itself."""
        self.core.register(transfer)
        gate, transfer.gate = transfer.gate, None
        none = plan([], [], [])
        first = Transfer(transfer.flow, transfer.link, none, self._backend.now(), gate, transfer.lane, None)
        first.part = True
        first.add_done_callback(lambda done: self._begin(transfer, done, to_device))
        self.core.submit(first)

    def close(self) -> None:
        """Free the pinned buffers; only after the fabric has drained."""
        while self._all:
            self._backend.free_pinned(self._all.pop())
        self._free.clear()

    def _begin(self, transfer: Transfer, first: Transfer, to_device: bool) -> None:
        if first.state != DONE:
            transfer.finish(first.state, self._backend.now(), first.error)
            return
        transfer.ready_s = transfer.ready_s if transfer.ready_s is not None else self._backend.now()
        with self.core.lock:
            self._waiting.append((transfer, to_device))
        self._run(self._pump)

    def _pump(self) -> None:
        """Fill free buffers with the parts that are next."""
        while True:
            with self.core.lock:
                while self._waiting and self._waiting[0][0].state != QUEUED:
                    self._waiting.popleft()
                buffer = self._buffer() if self._waiting else None
                if buffer is None:
                    return
                transfer, to_device = self._waiting[0]
                segments = transfer.take(STAGE_NBYTES)
                if not transfer.remaining_nbytes:
                    self._waiting.popleft()
            try:
                self._send(transfer, segments, buffer, to_device)
            except UmshError as error:
                transfer.finish(FAILED, self._backend.now(), error)
                self._give_back(buffer)

    def _buffer(self) -> int | None:
        if not self._free and len(self._all) < STAGES:
            self._all.append(self._backend.alloc_pinned(STAGE_NBYTES))
            self._free.append(self._all[-1])
        return self._free.pop() if self._free else None

    def _give_back(self, buffer: int) -> None:
        with self.core.lock:
            self._free.append(buffer)

    def _send(self, transfer: Transfer, segments: Segments, buffer: int, to_device: bool) -> None:
        staged = _staged(segments, buffer)
        if to_device:
            for at, src, nbytes in zip(staged, segments.srcs, segments.sizes, strict=True):
                self._backend.host_copy(at, src, nbytes)
        pieces: Pieces = (
            plan(segments.dsts, staged, segments.sizes)
            if to_device
            else plan(staged, segments.srcs, segments.sizes)
        )
        part = Transfer(transfer.flow, transfer.link, pieces, self._backend.now(), None, transfer.lane, None)
        part.part = True
        part.add_done_callback(
            lambda done: self._run(lambda: self._landed(transfer, done, segments, buffer, to_device))
        )
        self.core.submit(part)
        self._kick()

    def _landed(
        self, transfer: Transfer, part: Transfer, segments: Segments, buffer: int, to_device: bool
    ) -> None:
        now_s = self._backend.now()
        if part.state != DONE:
            transfer.finish(part.state, now_s, part.error)
        elif transfer.state == QUEUED:
            if not to_device:
                for dst, at, nbytes in zip(
                    segments.dsts, _staged(segments, buffer), segments.sizes, strict=True
                ):
                    self._backend.host_copy(dst, at, nbytes)
            transfer.completed_nbytes += part.nbytes
            if transfer.completed_nbytes == transfer.nbytes:
                transfer.finish(DONE, self._backend.now())
                if transfer.latency_s is not None:
                    transfer.flow.note_latency(transfer.latency_s)
        self._give_back(buffer)
        self._pump()


def _staged(segments: Segments, buffer: int) -> list[int]:
    """Where each piece lies in the buffer, packed."""
    at, places = buffer, []
    for nbytes in segments.sizes:
        places.append(at)
        at += nbytes
    return places
