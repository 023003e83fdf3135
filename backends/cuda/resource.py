"""A cuda.core MemoryResource whose buffers are memory that CPU and GPU share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.core import Buffer, MemoryResource

from umsh.errors import DeviceError, UnsupportedError

if TYPE_CHECKING:
    from umsh.backends.cuda.device import CudaDevice
    from umsh.backends.driver import Memory


class SharedMemoryResource(MemoryResource):  # type: ignore[misc]  # cuda.core has no types
    """Allocates one memory kind of an opened device, "pinned" by default.

    Allocation is not stream-ordered; a buffer is freed once its stream's work is done, at the latest
    FREE_TIMEOUT_S after. Raises what Device.allocate raises; UnsupportedError for kind "copy", whose
    CPU and GPU addresses differ.
    """

    FREE_TIMEOUT_S = 10.0

    def __init__(self, device: CudaDevice, kind: str = "pinned", pages: str = "driver") -> None:
        if kind == "copy":
            raise UnsupportedError(
                "A cuda.core Buffer has one address and 'copy' memory has two.",
                "No resource was made.",
                "Use 'pinned', 'registered' or 'managed'.",
            )
        self._device = device
        self._kind, self._pages = kind, pages
        self._live: dict[int, Memory] = {}

    def allocate(self, size: int, stream: Any = None) -> Buffer:
        """A Buffer of `size` bytes, zeroed, reachable by CPU and GPU at its handle."""
        memory = self._device.allocate(self._kind, max(1, size), self._pages)
        self._live[memory.device_address] = memory
        return Buffer.from_handle(memory.device_address, size, mr=self)

    def deallocate(self, ptr: Any, size: int, stream: Any = None) -> None:
        """Give a buffer back after the work of `stream`. DeviceError for a pointer that is none of ours."""
        memory = self._live.pop(int(ptr), None)
        if memory is None:
            raise DeviceError(
                f"{int(ptr):#x} was not allocated by this resource.", "Nothing was freed.", "Free it once."
            )
        self._device.stream(stream).synchronize(self.FREE_TIMEOUT_S)
        memory.free()

    @property
    def is_device_accessible(self) -> bool:
        return True

    @property
    def is_host_accessible(self) -> bool:
        return True

    @property
    def device_id(self) -> int:
        return self._device.index
