"""Turns: a region is with the CPU or with the GPU, and `with` blocks hand it over."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

from umsh.loan import Loan
from umsh.views import GpuView, RegionArray

if TYPE_CHECKING:
    from umsh.backends.driver import Event, Stream
    from umsh.region import Region


class CpuTurn:
    """`with region.on_cpu(write=...) as a`: gives the NumPy array of the region."""

    __slots__ = ("_loan", "_region", "_timeout_s", "_write")

    def __init__(self, region: Region, write: bool, timeout_s: float, caller: FrameType) -> None:
        self._region = region
        self._write = write
        self._timeout_s = timeout_s
        self._loan = Loan("CPU", caller)

    def __enter__(self) -> RegionArray:
        region = self._region
        region._begin(self._loan)
        try:
            region._receive(self._timeout_s)
            array: RegionArray = self._loan.lend(region._turn_array, self._view)
            return array
        except BaseException:
            region._end()
            raise

    def _view(self, root: RegionArray) -> RegionArray:
        array = root.view()
        if not self._write:
            array.setflags(write=False)
        return array

    def __exit__(self, *_: object) -> None:
        try:
            self._loan.close()
            if self._write:
                self._region._publish_all(None)
        finally:
            self._region._end()


class GpuTurn:
    """`with region.on_gpu(stream=...) as g`: gives the GpuView of the region."""

    __slots__ = ("_loan", "_native", "_region", "_stream", "_timeout_s")

    def __init__(self, region: Region, native: object, timeout_s: float, caller: FrameType) -> None:
        self._region = region
        self._native = native
        self._timeout_s = timeout_s
        self._stream: Stream | None = None
        self._loan = Loan("GPU", caller)

    def __enter__(self) -> GpuView:
        region = self._region
        region._begin(self._loan)
        try:
            keeper = region._keeper
            stream = self._stream = region.device.stream(self._native)
            if self._native is None:
                keeper.settle(self._timeout_s)
            for pending in keeper.work:
                stream.wait_event(_as_event(pending))
            view: GpuView = self._loan.lend(region._device_array, self._view)
            keeper.work[:] = [stream]
            return view
        except BaseException:
            region._end()
            raise

    def _view(self, root: Any) -> GpuView:
        device, stream = self._region.device, self._stream

        def order(consumer: object) -> None:
            """Let a DLPack consumer's stream start after the work of this turn's stream."""
            if stream is not None:
                device.stream(consumer).wait_event(stream.record())

        return GpuView(self._region._keeper.memory, root, device.dlpack_device, self._native, order)

    def __exit__(self, *_: object) -> None:
        region, stream = self._region, self._stream
        try:
            self._loan.close()
            if stream is not None:
                region._gpu_done(stream, self._timeout_s, wait=self._native is None)
        finally:
            region._end()


def _as_event(pending: Event | Stream) -> Event:
    """The event to wait for: streams stand for an open or interrupted turn's work."""
    record = getattr(pending, "record", None)
    event: Event = pending if record is None else record()  # type: ignore[assignment]
    return event
