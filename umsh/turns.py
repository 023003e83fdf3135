"""Turns: a region is with the CPU or with the GPU, and `with` blocks hand it over."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from umsh.errors import RegionBusy
from umsh.views import GpuView, Loan, RegionArray

if TYPE_CHECKING:
    from umsh.backends.driver import Event, Stream
    from umsh.region import Region


class Turn:
    """One `with` block of one agent on one region; where it began is kept for messages."""

    __slots__ = ("_code", "_line", "_loan", "_region", "_timeout_s")
    agent = ""

    def __init__(self, region: Region, timeout_s: float, caller: FrameType) -> None:
        self._region = region
        self._timeout_s = timeout_s
        self._code: CodeType = caller.f_code
        self._line = caller.f_lineno
        self._loan: Loan | None = None

    @property
    def place(self) -> str:
        return f"{self._code.co_filename}:{self._line}"

    def busy(self, live: int) -> RegionBusy:
        """The error of a hand-over while `live` arrays or tensors of this turn are still held."""
        noun = "array, view, buffer or tensor" if live == 1 else "arrays, views, buffers or tensors"
        return RegionBusy(
            f"{live} {noun} of the {self.agent} turn that began at {self.place} still live.",
            "The region was not handed over.",
            "Delete them and the block's own array (`del`), or copy what you keep: numpy.array(view).",
        )

    def open_error(self) -> RegionBusy:
        """The error of a turn that begins while this one is open."""
        return RegionBusy(
            f"The {self.agent} turn that began at {self.place} is still open.",
            "The region was not handed over.",
            "End that `with` block first.",
        )

    def live(self) -> int:
        return 0 if self._loan is None else self._loan.live()

    def close(self) -> None:
        """Take back what was lent; views made from it still count as live."""
        if self._loan is not None:
            self._loan.close()


class CpuTurn(Turn):
    """`with region.on_cpu(write=...) as a`: gives the NumPy array of the region."""

    __slots__ = ("_write",)
    agent = "CPU"

    def __init__(self, region: Region, write: bool, timeout_s: float, caller: FrameType) -> None:
        super().__init__(region, timeout_s, caller)
        self._write = write

    def __enter__(self) -> RegionArray:
        region = self._region
        region._begin(self)
        try:
            region._receive(self._timeout_s)
            self._loan = Loan(region._turn_array, self._lend)
        except BaseException:
            region._end()
            raise
        array: RegionArray = self._loan.lent
        return array

    def _lend(self, root: RegionArray) -> RegionArray:
        array = root.view()
        if not self._write:
            array.setflags(write=False)
        return array

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
            if self._write:
                self._region._publish_all(None)
        finally:
            self._region._end()


class GpuTurn(Turn):
    """`with region.on_gpu(stream=...) as g`: gives the GpuView of the region."""

    __slots__ = ("_native", "_stream")
    agent = "GPU"

    def __init__(self, region: Region, native: object, timeout_s: float, caller: FrameType) -> None:
        super().__init__(region, timeout_s, caller)
        self._native = native
        self._stream: Stream | None = None

    def __enter__(self) -> GpuView:
        region = self._region
        region._begin(self)
        try:
            keeper, device = region._keeper, region.device
            self._stream = device.stream(self._native)
            if self._native is None:
                keeper.settle(self._timeout_s)
            for event in keeper.work:
                self._stream.wait_event(_as_event(event))
            self._loan = Loan(region._device_array, self._lend)
            keeper.work[:] = [self._stream]
        except BaseException:
            region._end()
            raise
        view: GpuView = self._loan.lent
        return view

    def _lend(self, root: Any) -> GpuView:
        device, stream = self._region.device, self._stream

        def order(consumer: object) -> None:
            """Let a DLPack consumer's stream start after the work of this turn's stream."""
            if stream is not None:
                device.stream(consumer).wait_event(stream.record())

        return GpuView(self._region._keeper.memory, root, device.dlpack_device, self._native, order)

    def __exit__(self, *_: object) -> None:
        region, stream = self._region, self._stream
        try:
            self.close()
            if stream is not None:
                region._gpu_done(stream, self._timeout_s, wait=self._native is None)
        finally:
            region._end()


def _as_event(pending: Event | Stream) -> Event:
    """The event to wait for: streams stand for an open or interrupted turn's work."""
    record = getattr(pending, "record", None)
    event: Event = pending if record is None else record()  # type: ignore[assignment]
    return event
