"""OpenCL memory kinds: fine-grain SVM, our own pages by address, and the copy baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umsh.backends.driver import Event, Memory, Stream
from umsh.backends.opencl.runtime import calling
from umsh.backends.opencl.stream import OpenCLEvent
from umsh.backends.pages import Pages, view
from umsh.mechanism import Backing

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice
    from umsh.mechanism import MemoryKind


class OpenCLMemory(Memory):
    """Memory that both agents reach at one address; kinds differ in who allocated it."""

    def __init__(self, kind: MemoryKind, address: int, nbytes: int, backing: Backing) -> None:
        self.kind = kind
        self.address = address
        self.device_address = address
        self.nbytes = nbytes
        self.backing = backing

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None


class SvmMemory(OpenCLMemory):
    """clSVMAlloc with fine-grain buffer sharing and, where the device has them, SVM atomics."""

    def __init__(self, device: OpenCLDevice, kind: MemoryKind, nbytes: int) -> None:
        import pyopencl as cl

        flags = cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
        if kind.inside:
            flags |= cl.svm_mem_flags.SVM_ATOMICS
        with calling(f"clSVMAlloc of {nbytes} bytes"):
            self._allocation = cl.SVMAllocation(device.context, nbytes, 0, flags)
        super().__init__(kind, self._allocation.svm_ptr, nbytes, Backing("driver", 0, nbytes, 0, "driver"))
        self.kernel_arg = self._allocation
        view(self.address, nbytes)[:] = 0

    def free(self) -> None:
        if self._allocation is not None:
            self._allocation.release()
            self._allocation = self.kernel_arg = None


class SystemMemory(OpenCLMemory):
    """Our own CPU pages, passed by address."""

    def __init__(self, kind: MemoryKind, pages: Pages, nbytes: int) -> None:
        import pyopencl as cl

        super().__init__(kind, pages.address, nbytes, pages.backing)
        self._pages: Pages | None = pages
        self.kernel_arg = cl.SVM(view(self.address, nbytes))

    def free(self) -> None:
        if self._pages is not None:
            self.kernel_arg = None
            self._pages.free()
            self._pages = None


class CopyMemory(OpenCLMemory):
    """CPU pages and a cl.Buffer of the same size, kept equal by copies: the baseline."""

    def __init__(self, device: OpenCLDevice, kind: MemoryKind, pages: Pages, nbytes: int) -> None:
        import pyopencl as cl

        super().__init__(kind, pages.address, nbytes, pages.backing)
        self._pages: Pages | None = pages
        self._view = view(self.address, nbytes)
        with calling(f"clCreateBuffer of {nbytes} bytes"):
            self.kernel_arg = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, nbytes)
        self.device_address = 0

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        import pyopencl as cl

        part = self._view[offset : offset + nbytes]
        with calling("clEnqueueWriteBuffer"):
            event = cl.enqueue_copy(
                stream.native, self.kernel_arg, part, dst_offset=offset, is_blocking=False
            )
            stream.native.flush()
        return OpenCLEvent(event)

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        import pyopencl as cl

        part = self._view[offset : offset + nbytes]
        with calling("clEnqueueReadBuffer"):
            event = cl.enqueue_copy(
                stream.native, part, self.kernel_arg, src_offset=offset, is_blocking=False
            )
            stream.native.flush()
        return OpenCLEvent(event)

    def free(self) -> None:
        if self._pages is not None:
            self.kernel_arg.release()
            self.kernel_arg = self._view = None
            self._pages.free()
            self._pages = None
