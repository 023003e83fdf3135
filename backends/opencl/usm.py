"""Intel unified shared memory (cl_intel_unified_shared_memory) by extension function addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umsh.backends.opencl.loader import extension, ffi, handle, loader
from umsh.backends.opencl.memory import OpenCLMemory, argument, driver_backing
from umsh.backends.pages import view
from umsh.errors import OutOfMemory
from umsh.mechanism import MemoryKind

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice

EXTENSION = "cl_intel_unified_shared_memory"
# OpenCL-Docs, extensions/cl_intel_unified_shared_memory
HOST_CAPABILITIES, SHARED_CAPABILITIES = 0x4190, 0x4192
ACCESS, CONCURRENT_ACCESS, CONCURRENT_ATOMIC = 1 << 0, 1 << 2, 1 << 3
ALIGNMENT = 4096


def usm_kinds(native: Any) -> tuple[MemoryKind, ...]:
    """The USM kinds of a pyopencl device, absent ones with the missing fact."""
    return (
        _kind(native, "usm-host", HOST_CAPABILITIES),
        _kind(native, "usm-shared", SHARED_CAPABILITIES),
    )


def _kind(native: Any, name: str, query: int) -> MemoryKind:
    has, absent = 0, f"no {EXTENSION}"
    if EXTENSION in native.extensions:
        value = ffi.new("uint64_t *")
        code = loader().clGetDeviceInfo(handle(native), query, 8, value, ffi.NULL)
        has = int(value[0]) if code == 0 else 0
        absent = "" if has & ACCESS else f"no access by capability {query:#x}"
    inside = bool(has & CONCURRENT_ACCESS and has & CONCURRENT_ATOMIC)
    return MemoryKind(name, ("driver",), "WB", "?", "two-way", not absent, inside and not absent, absent)


def usm_memory(device: OpenCLDevice, kind: MemoryKind, nbytes: int) -> OpenCLMemory:
    """clHostMemAllocINTEL or clSharedMemAllocINTEL; OutOfMemory when refused."""
    context, code = handle(device.context), ffi.new("int32_t *")
    if kind.name == "usm-host":
        allocate = extension(device.native, "host_alloc", "clHostMemAllocINTEL")
        pointer = allocate(context, ffi.NULL, nbytes, ALIGNMENT, code)
    else:
        allocate = extension(device.native, "shared_alloc", "clSharedMemAllocINTEL")
        pointer = allocate(context, handle(device.native), ffi.NULL, nbytes, ALIGNMENT, code)
    if pointer == ffi.NULL:
        raise OutOfMemory(
            f"{kind.name} allocation of {nbytes} bytes failed with OpenCL code {code[0]}.",
            "Nothing was left allocated.",
            "Use less memory, or another memory kind.",
        )
    blocking_free = extension(device.native, "mem_free", "clMemBlockingFreeINTEL")
    keep = device.context  # the context must outlive what was allocated in it

    def release() -> None:
        blocking_free(handle(keep), pointer)

    address = int(ffi.cast("uintptr_t", pointer))
    view(address, nbytes)[:] = 0
    return OpenCLMemory(kind, address, nbytes, driver_backing(nbytes), argument(address, nbytes), release)
