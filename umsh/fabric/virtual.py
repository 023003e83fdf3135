"""The virtual backend: the fabric on a modelled machine under a virtual clock, exact and without a GPU."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from umsh.errors import DeviceError
from umsh.fabric.backend import Pointer, Segments
from umsh.fabric.copy_engine import Clock, Machine, MachineModel, ModelEvent, ModelStream

_PAGE = 1 << 21


class ModelBuffer:
    """Modelled memory: `ptr`, `nbytes`, `kind`, `device`; `data` (uint8) or None where only time matters."""

    def __init__(self, ptr: int, nbytes: int, kind: str, device: int | None, data: bool) -> None:
        self.ptr, self.nbytes, self.kind, self.device = ptr, nbytes, kind, device
        self.data: npt.NDArray[np.uint8] | None = np.zeros(nbytes, np.uint8) if data else None


class VirtualBackend:
    """A `Backend` whose time moves only when its clock is stepped. Figures from it are *modelled*."""

    label = "modelled"

    def __init__(self, model: MachineModel | None = None) -> None:
        self.clock = Clock()
        self.machine = Machine(model or MachineModel(), self.clock)
        self.machine.read, self.machine.write = self._read, self._write
        self.buffers: list[ModelBuffer] = []
        self.streams: list[ModelStream] = []
        self.broken = False
        """Set to make every driver operation fail, as after a device reset."""
        self.lag_s = 0.0
        """Added to what `now` tells: a jump of the host's clock."""
        self.on_event: Callable[[], None] = lambda: None
        """Called when an event is done; the dispatcher reacts to it."""
        self._addresses = itertools.count(1)
        self._starts: list[int] = []

    def alloc(self, kind: str, nbytes: int, device: int | None = None, data: bool = False) -> ModelBuffer:
        """New modelled memory of kind `device`, `pinned` or `pageable`."""
        pages = -(-max(nbytes, 1) // _PAGE)
        start = next(self._addresses) * _PAGE
        for _ in range(pages):
            next(self._addresses)
        buffer = ModelBuffer(start, nbytes, kind, device, data)
        self.buffers.append(buffer)
        self._starts.append(start)
        return buffer

    def kernel(self, stream: ModelStream, duration_s: float, effect: Any = None) -> None:
        """A kernel of `duration_s` on `stream`; `effect()` runs at its end (what it writes)."""
        stream.enqueue("kernel", duration_s, effect)

    def sm_copy(self, stream: ModelStream, link: str, nbytes: int, weight: float = 1.0) -> ModelEvent:
        """A kernel on `stream` that moves `nbytes` over `link` itself, past the copy engine."""
        stream.enqueue("sm", (link, nbytes, weight))
        return self.record(stream)

    def run(self, until_s: float = float("inf")) -> None:
        """Let time pass until `until_s`, or until nothing is left to happen."""
        while self.clock.step(until_s):
            pass
        if until_s != float("inf"):
            self.clock.now_s = max(self.clock.now_s, until_s)

    def now(self) -> float:
        return self.clock.now_s + self.lag_s

    def pointer(self, address: int, nbytes: int) -> Pointer:
        buffer = self._find(address)
        if buffer is None:
            return Pointer("pageable", None, address, nbytes)
        return Pointer(buffer.kind, buffer.device, buffer.ptr, buffer.nbytes)

    def stream(self, given: object) -> ModelStream:
        assert isinstance(given, ModelStream)
        return given

    def current_stream(self, owner: object) -> object | None:
        return None

    def open_stream(self, device: int, priority: int = 0) -> ModelStream:
        stream = ModelStream(self.machine, device, priority)
        self.streams.append(stream)
        return stream

    def capturing(self, stream: ModelStream) -> bool:
        return stream.capturing

    def copy(self, link: str, stream: ModelStream, segments: Segments) -> None:
        self._check()
        if stream.capturing:
            stream.captured.append((link, segments))
        else:
            stream.enqueue("copy", (link, segments))

    def record(self, stream: ModelStream) -> ModelEvent:
        self._check()
        event = ModelEvent()
        event.waiters.append(lambda: self.on_event())
        stream.enqueue("record", event)
        return event

    def record_device(self, device: int) -> ModelEvent:
        """Done once everything enqueued on the device so far is."""
        event = ModelEvent()
        waiting = [
            self.record(stream) for stream in self.streams if stream.device == device and not stream.idle()
        ]
        left = [len(waiting)]

        def one_done() -> None:
            left[0] -= 1
            if left[0] == 0:
                event.fire()

        for other in waiting:
            other.waiters.append(one_done)
        event.done = not waiting
        return event

    def done(self, event: ModelEvent) -> bool:
        self._check()
        return event.done

    def free_event(self, event: ModelEvent) -> None:
        return None

    def wait_event(self, stream: ModelStream, event: ModelEvent) -> None:
        stream.enqueue("wait", event)

    def relaxed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def capacity_bps(self, link: str) -> float:
        return self.machine.link(link).capacity_bps

    def alloc_pinned(self, nbytes: int) -> int:
        return self.alloc("pinned", nbytes, data=True).ptr

    def free_pinned(self, address: int) -> None:
        at = self._starts.index(address)
        del self._starts[at], self.buffers[at]

    def alloc_device(self, nbytes: int, device: int) -> int:
        return self.alloc("device", nbytes, device).ptr

    def free_device(self, address: int, device: int) -> None:
        self.free_pinned(address)

    def host_copy(self, dst: int, src: int, nbytes: int) -> None:
        segments = Segments([dst], [src], [nbytes])
        self._write(segments, self._read(segments))

    def _check(self) -> None:
        if self.broken:
            raise DeviceError("The modelled device was reset.", "Its memory is lost.", "Start again.")

    def _find(self, address: int) -> ModelBuffer | None:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= self.buffers[at].ptr + max(self.buffers[at].nbytes, 1):
            return None
        return self.buffers[at]

    def _view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8] | None:
        buffer = self._find(address)
        assert buffer is not None
        assert address + nbytes <= buffer.ptr + buffer.nbytes
        at = address - buffer.ptr
        return None if buffer.data is None else buffer.data[at : at + nbytes]

    def _read(self, segments: Segments) -> list[Any]:
        views = [self._view(src, n) for src, n in zip(segments.srcs, segments.sizes, strict=True)]
        return [None if view is None else view.copy() for view in views]

    def _write(self, segments: Segments, data: list[Any]) -> None:
        for dst, nbytes, source in zip(segments.dsts, segments.sizes, data, strict=True):
            view = self._view(dst, nbytes)
            if view is not None and source is not None:
                view[:] = source
