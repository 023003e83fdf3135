"""A transfer: one copy or batch of copies that moves in chunks, and what its caller can do with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from umsh.errors import DeviceError, TurnError, UnsupportedError, WaitTimeout
from umsh.fabric.backend import Event, Segments

if TYPE_CHECKING:
    from umsh.fabric.flow import Flow
    from umsh.fabric.pieces import Pieces

QUEUED, DONE, CANCELLED, FAILED, CAPTURED = "queued", "done", "cancelled", "failed", "captured"
PIECES_MAX = 256
"""Most pieces of one chunk: a stream's queue holds about a thousand entries before submission blocks."""


class Transfer:
    """Handle of one `copy` or `copy_many`; made by a flow, never directly.

    `state` is queued, done, cancelled, failed or captured. `latency_s` runs from the moment the copy could
    start (call, producer done, delay over) to the last byte; None until then.
    """

    def __init__(
        self, flow: Flow, link: str, pieces: Pieces, now_s: float, gate: Event | None, lane: int, owners: Any
    ) -> None:
        self.flow, self.link, self.gate, self.lane = flow, link, gate, lane
        self.nbytes = pieces.nbytes
        self.submitted_nbytes = self.completed_nbytes = 0
        self.state = QUEUED
        self.error: BaseException | None = None
        self.notes: list[str] = []
        self.called_s = now_s
        self.ready_s: float | None = None if gate is not None else now_s
        self.started_s: float | None = None
        self.done_s: float | None = None
        self.last_event: Event | None = None
        self.sequence = 0
        self.key: object = None
        self.followers: list[Transfer] = []
        self.leader: Transfer | None = None
        self.in_flight = 0
        self.cancelling: str | None = None
        self.yields = False
        self.part = False
        """True for one buffer of a staged transfer: no transfer of its own in the counts."""
        self._dsts, self._srcs, self._sizes = (column.tolist() for column in pieces)
        self._at, self._offset = 0, 0
        self._owners = owners
        self._finished = threading.Event()
        self._callbacks: list[Callable[[Transfer], object]] = []
        self._lock = threading.Lock()

    @property
    def flight(self) -> tuple[object, str]:
        """What single flight goes by: the caller's key, on this link."""
        return self.key, self.link

    @property
    def remaining_nbytes(self) -> int:
        """Bytes not yet submitted to the link."""
        return self.nbytes - self.submitted_nbytes

    @property
    def latency_s(self) -> float | None:
        return None if self.done_s is None or self.ready_s is None else self.done_s - self.ready_s

    def take(self, nbytes_max: int) -> Segments:
        """The next chunk, at most `nbytes_max` bytes in at most `PIECES_MAX` pieces; moves the cursor."""
        if len(self._sizes) == 1:
            n, at = min(nbytes_max, self._sizes[0] - self._offset), self._offset
            self._offset += n
            self.submitted_nbytes += n
            return Segments([self._dsts[0] + at], [self._srcs[0] + at], [n])
        dsts: list[int] = []
        srcs: list[int] = []
        sizes: list[int] = []
        left = nbytes_max
        while left and self._at < len(self._sizes) and len(sizes) < PIECES_MAX:
            size = self._sizes[self._at] - self._offset
            n = min(left, size)
            dsts.append(self._dsts[self._at] + self._offset)
            srcs.append(self._srcs[self._at] + self._offset)
            sizes.append(n)
            left -= n
            if n == size:
                self._at, self._offset = self._at + 1, 0
            else:
                self._offset += n
        self.submitted_nbytes += nbytes_max - left
        return Segments(dsts, srcs, sizes)

    def wait(self, timeout_s: float | None = 60.0) -> Transfer:
        """Block until every byte has arrived; returns itself.

        Raises `WaitTimeout` after `timeout_s` (the copy goes on), `DeviceError` if the copy failed,
        `TurnError` if it was cancelled, `UnsupportedError` if it was captured into a graph (the graph's
        launch runs it).
        """
        if not self._finished.is_set():
            self.flow.fabric.dispatcher.wait(self, timeout_s)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Transfer]:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(None)

        self.add_done_callback(lambda _: loop.call_soon_threadsafe(settle))
        self.flow.fabric.dispatcher.on_await(self)
        yield from future.__await__()
        return self._outcome()

    def wait_on(self, stream: object, timeout_s: float = 60.0) -> Transfer:
        """Order `stream` (a driver handle, or an object with one) after the copy.

        Blocks the calling thread until the last chunk has been handed to the link (all bytes have
        arrived, for a staged copy), at most `timeout_s`, then returns without waiting for the bytes: no wait
        on a value that a stalled host would have to write is ever put on a stream.
        """
        fabric = self.flow.fabric
        if self.state == CAPTURED:
            return self  # the graph already orders the copy on its own stream
        if not self._finished.is_set():
            fabric.dispatcher.wait(self, timeout_s, submitted=True)
        if self.state in (CANCELLED, FAILED):
            self._outcome()
        with fabric.core.lock:  # the event goes back to its pool when the copy ends
            if self.state == QUEUED and self.last_event is not None:
                fabric.backend.wait_event(fabric.backend.stream(stream), self.last_event)
        return self

    def cancel(self) -> int:
        """Drop the chunks not yet submitted; those in flight land. Returns the bytes that will not be copied.

        A leader of a single flight (`copy(key=)`) with followers goes on for them.
        """
        return self.flow.fabric.core.cancel(self)

    def add_done_callback(self, callback: Callable[[Transfer], object]) -> None:
        """Call `callback(transfer)` once, when the transfer has ended; at once if it has."""
        with self._lock:
            if not self._finished.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def finish(self, state: str, now_s: float, error: BaseException | None = None) -> None:
        """End the transfer: internal to the fabric; calls back and lets go of the caller's arrays."""
        with self._lock:
            if self._finished.is_set():
                return
            self.state, self.error, self.done_s = state, error, now_s
            if self.ready_s is None:
                self.ready_s = now_s
            self._owners = self.gate = None
            self._finished.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
        followers, self.followers = self.followers, []
        for follower in followers:
            follower.finish(state, now_s, error)

    def finished(self, timeout_s: float | None = None) -> bool:
        """True once ended; waits at most `timeout_s` (0 when None)."""
        return self._finished.wait(timeout_s or 0)

    def _outcome(self) -> Transfer:
        if self.state == FAILED:
            raise DeviceError(
                f"The copy of flow {self.flow.name!r} on {self.link} failed after {self.completed_nbytes} of "
                f"{self.nbytes} bytes: {self.error}",
                "The destination holds a mix of old and new bytes.",
                "Find the driver's error in the cause; copy again once the device works.",
            ) from self.error
        if self.state == CANCELLED:
            raise TurnError(
                f"The copy of flow {self.flow.name!r} was cancelled after {self.completed_nbytes} of "
                f"{self.nbytes} bytes.",
                "The destination holds a mix of old and new bytes.",
                "Copy again, or do not wait for a transfer that you cancel.",
            )
        if self.state == CAPTURED:
            raise UnsupportedError(
                f"The copy of flow {self.flow.name!r} was captured into a graph.",
                "It runs when the graph is launched; there is nothing to wait for here.",
                "Wait for the launch, or copy outside the capture.",
            )
        return self

    def timed_out(self, timeout_s: float) -> WaitTimeout:
        return WaitTimeout(
            f"{self.completed_nbytes} of {self.nbytes} bytes of flow {self.flow.name!r} had arrived "
            f"after {timeout_s:g} s.",
            "The copy goes on.",
            f"Wait again, or see fabric.explain({self.flow.name!r}) for what holds it.",
        )
