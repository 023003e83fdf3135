"""The copy baseline: CPU memory and device memory, made equal by copies on a stream."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from umsh.backends.cuda.calls import check, check_process, driver
from umsh.backends.cuda.memory import CudaMemory, allocate_host, driver_backing, released
from umsh.backends.cuda.stream import CudaStream
from umsh.backends.driver import Event, Stream
from umsh.backends.pages import Pages
from umsh.errors import NeedError
from umsh.mechanism import MemoryKind

if TYPE_CHECKING:
    from umsh.backends.cuda.device import CudaDevice


class CopyMemory(CudaMemory):
    """Two memories: `address` is the CPU's, `device_address` the GPU's."""

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        to, ours = self._ready(offset, nbytes, stream)
        with self.device.current():
            check(
                driver().cuMemcpyHtoDAsync(
                    self.device_address + offset, self.address + offset, nbytes, to.native
                ),
                "cuMemcpyHtoDAsync",
            )
        return self._after(to, ours)

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        to, ours = self._ready(offset, nbytes, stream)
        with self.device.current():
            check(
                driver().cuMemcpyDtoHAsync(
                    self.address + offset, self.device_address + offset, nbytes, to.native
                ),
                "cuMemcpyDtoHAsync",
            )
        return self._after(to, ours)

    def _ready(self, offset: int, nbytes: int, stream: Stream) -> tuple[CudaStream, Stream | None]:
        """The stream the copy goes to, and the whole device when the user named none."""
        check_process()
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise NeedError(
                f"Bytes {offset} to {offset + nbytes} of a region of {self.nbytes} were to be copied.",
                "Nothing was copied.",
                "Copy inside the region.",
            )
        if isinstance(stream, CudaStream):
            return stream, None
        own = self.device.copies
        own.wait_event(stream.record())  # after everything the device was given before
        return own, stream

    def _after(self, to: CudaStream, whole: Stream | None) -> Event:
        event = to.record()
        if whole is not None:
            whole.wait_event(event)
        return event


def copied(device: CudaDevice, kind: MemoryKind, nbytes: int, own_pages: bool) -> CopyMemory:
    """CPU memory, pageable with own pages and else pinned, and as much device memory; both zeroed."""
    native = driver()
    with ExitStack() as undo:
        if own_pages:
            pages = Pages(nbytes, "4k")
            undo.callback(pages.free)
            address, backing = pages.address, pages.backing
        else:
            address, _ = allocate_host(undo, nbytes, write_combined=False)
            backing = driver_backing(nbytes)
        (pointer,) = check(native.cuMemAlloc(nbytes), f"cuMemAlloc of {nbytes} bytes")
        undo.callback(lambda: released(native.cuMemFree(pointer), "cuMemFree"))
        check(native.cuMemsetD8(pointer, 0, nbytes), "cuMemsetD8")
        memory = CopyMemory(device, kind, nbytes, backing, undo.pop_all())
    memory.place(address, int(pointer))
    return memory
