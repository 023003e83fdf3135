"""OpenCL memory kinds: fine-grain SVM, our own pages by address, and the copy baseline."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from umsh.backends.driver import Event, Memory, Stream, check_range
from umsh.backends.opencl.runtime import calling, check_process
from umsh.backends.opencl.stream import OpenCLEvent, over
from umsh.backends.pages import Pages, view
from umsh.mechanism import Backing

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice
    from umsh.mechanism import MemoryKind


def driver_backing(nbytes: int) -> Backing:
    """Pages that the driver chose and does not tell of."""
    return Backing("driver", 0, nbytes, 0, "driver")


class OpenCLMemory(Memory):
    """Memory that both agents reach at one address; kinds differ in who allocated it."""

    def __init__(
        self,
        kind: MemoryKind,
        address: int,
        nbytes: int,
        backing: Backing,
        kernel_arg: Any,
        release: Callable[[], object],
    ) -> None:
        self.kind = kind
        self.address = self.device_address = address
        self.nbytes = nbytes
        self.backing = backing
        self.kernel_arg = kernel_arg
        self._free = weakref.finalize(self, _in_owner, os.getpid(), release)
        self._free.atexit = False

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def free(self) -> None:
        self.kernel_arg = None
        self._free()


def _in_owner(pid: int, release: Callable[[], object]) -> None:
    """Release only where it was allocated: a forked child must not touch the parent's driver."""
    if pid == os.getpid():
        release()


def svm_memory(device: OpenCLDevice, kind: MemoryKind, nbytes: int) -> OpenCLMemory:
    """clSVMAlloc with fine-grain buffer sharing and, where the device has them, SVM atomics."""
    import pyopencl as cl

    flags = cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
    if kind.inside:
        flags |= cl.svm_mem_flags.SVM_ATOMICS
    with calling(f"clSVMAlloc of {nbytes} bytes"):
        allocation = cl.SVMAllocation(device.context, nbytes, 0, flags)
    address = int(allocation.svm_ptr)
    view(address, nbytes)[:] = 0
    return OpenCLMemory(kind, address, nbytes, driver_backing(nbytes), allocation, allocation.release)


class SystemMemory(OpenCLMemory):
    """Our own CPU pages, passed by address."""

    def __init__(self, kind: MemoryKind, pages: Pages) -> None:
        self._pages = pages
        passed = argument(pages.address, pages.nbytes)
        super().__init__(kind, pages.address, pages.nbytes, pages.backing, passed, pages.free)

    def share(self) -> Mapping[str, Any]:
        return {"driver": "opencl", "kind": self.kind.name, **self._pages.share()}


def adopted_memory(kind: MemoryKind, address: int, nbytes: int, keep: object) -> OpenCLMemory:
    """Pages of the caller, passed by address; `keep` lives as long as the memory."""
    memory = OpenCLMemory(
        kind, address, nbytes, Backing("driver", 0, nbytes, 0, "adopted"), argument(address, nbytes), int
    )
    memory.keep = keep
    return memory


class CopyMemory(OpenCLMemory):
    """CPU pages and a cl.Buffer of the same size, kept equal by copies: the baseline.

    pages: our own, or (address, nbytes, keep) of the caller.
    """

    def __init__(
        self, device: OpenCLDevice, kind: MemoryKind, pages: Pages | tuple[int, int, object]
    ) -> None:
        import pyopencl as cl

        own = isinstance(pages, Pages)
        address, nbytes = (pages.address, pages.nbytes) if isinstance(pages, Pages) else pages[:2]
        backing = pages.backing if isinstance(pages, Pages) else Backing("driver", 0, nbytes, 0, "adopted")
        with calling(f"clCreateBuffer of {nbytes} bytes"):
            buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, nbytes)

        def release() -> None:
            buffer.release()
            if isinstance(pages, Pages):
                pages.free()

        super().__init__(kind, address, nbytes, backing, buffer, release)
        self.device_address = 0
        self.keep = None if own else pages
        self._view = view(address, nbytes)
        self._copies: list[Any] = []

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        import pyopencl as cl

        check_process()
        check_range(self, offset, nbytes)
        part = self._view[offset : offset + nbytes]
        with calling("clEnqueueWriteBuffer"):
            event = cl.enqueue_copy(
                stream.native, self.kernel_arg, part, dst_offset=offset, is_blocking=False
            )
            stream.native.flush()
        return self._kept(event)

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        import pyopencl as cl

        check_process()
        check_range(self, offset, nbytes)
        part = self._view[offset : offset + nbytes]
        with calling("clEnqueueReadBuffer"):
            event = cl.enqueue_copy(
                stream.native, part, self.kernel_arg, src_offset=offset, is_blocking=False
            )
            stream.native.flush()
        return self._kept(event)

    def _kept(self, event: Any) -> OpenCLEvent:
        """Keep pyopencl's event until the copy is over: dropping it waits without a bound, the GIL held."""
        self._copies = [copy for copy in self._copies if not over(copy)] + [event]
        return OpenCLEvent(event)


def argument(address: int, nbytes: int) -> Any:
    """A kernel argument for an address: clSetKernelArgSVMPointer."""
    import pyopencl as cl

    return cl.SVM(view(address, nbytes))
