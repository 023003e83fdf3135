"""Intel unified shared memory (cl_intel_unified_shared_memory) by extension function addresses."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cffi import FFI

from umsh.backends.opencl.memory import OpenCLMemory, argument, driver_backing
from umsh.backends.pages import view
from umsh.errors import DeviceError, OutOfMemory
from umsh.mechanism import MemoryKind

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice

EXTENSION = "cl_intel_unified_shared_memory"
# OpenCL-Docs, extensions/cl_intel_unified_shared_memory
HOST_CAPABILITIES, SHARED_CAPABILITIES = 0x4190, 0x4192
ACCESS, CONCURRENT_ACCESS, CONCURRENT_ATOMIC = 1 << 0, 1 << 2, 1 << 3
ALIGNMENT = 4096

_ffi = FFI()
_ffi.cdef("""
void *clGetExtensionFunctionAddressForPlatform(void *platform, const char *name);
int32_t clGetDeviceInfo(void *device, uint32_t name, size_t nbytes, void *value, size_t *nbytes_out);
typedef void *(*host_alloc)(void *, const uint64_t *properties, size_t nbytes, uint32_t align, int32_t *code);
typedef void *(*shared_alloc)(void *, void *device, const uint64_t *, size_t, uint32_t align, int32_t *code);
typedef int32_t (*mem_free)(void *context, void *pointer);
""")


@lru_cache(maxsize=1)
def _loader() -> Any:
    """The OpenCL loader that pyopencl itself uses; a second one would know other devices."""
    import pyopencl  # noqa: F401  (its import maps the loader)

    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if "libOpenCL" in path:
            return _ffi.dlopen("/" + path)
    raise DeviceError("No OpenCL loader is mapped.", "USM cannot be used.", "Reinstall pyopencl.")


def usm_kinds(native: Any) -> tuple[MemoryKind, ...]:
    """The USM kinds of a pyopencl device, absent ones with the missing fact."""
    return (
        _kind(native, "usm-host", HOST_CAPABILITIES),
        _kind(native, "usm-shared", SHARED_CAPABILITIES),
    )


def _kind(native: Any, name: str, query: int) -> MemoryKind:
    has, absent = 0, f"no {EXTENSION}"
    if EXTENSION in native.extensions:
        value = _ffi.new("uint64_t *")
        code = _loader().clGetDeviceInfo(_handle(native), query, 8, value, _ffi.NULL)
        has = int(value[0]) if code == 0 else 0
        absent = "" if has & ACCESS else f"no access by capability {query:#x}"
    inside = bool(has & CONCURRENT_ACCESS and has & CONCURRENT_ATOMIC)
    return MemoryKind(name, ("driver",), "WB", "?", "two-way", not absent, inside and not absent, absent)


def _handle(item: Any) -> Any:
    return _ffi.cast("void *", item.int_ptr)


def usm_memory(device: OpenCLDevice, kind: MemoryKind, nbytes: int) -> OpenCLMemory:
    """clHostMemAllocINTEL or clSharedMemAllocINTEL; OutOfMemory when refused."""
    context, code = _handle(device.context), _ffi.new("int32_t *")
    if kind.name == "usm-host":
        allocate = _function(device.native, "host_alloc", "clHostMemAllocINTEL")
        pointer = allocate(context, _ffi.NULL, nbytes, ALIGNMENT, code)
    else:
        allocate = _function(device.native, "shared_alloc", "clSharedMemAllocINTEL")
        pointer = allocate(context, _handle(device.native), _ffi.NULL, nbytes, ALIGNMENT, code)
    if pointer == _ffi.NULL:
        raise OutOfMemory(
            f"{kind.name} allocation of {nbytes} bytes failed with OpenCL code {code[0]}.",
            "Nothing was left allocated.",
            "Use less memory, or another memory kind.",
        )
    blocking_free = _function(device.native, "mem_free", "clMemBlockingFreeINTEL")
    keep = device.context  # the context must outlive what was allocated in it

    def release() -> None:
        blocking_free(_handle(keep), pointer)

    address = int(_ffi.cast("uintptr_t", pointer))
    view(address, nbytes)[:] = 0
    return OpenCLMemory(kind, address, nbytes, driver_backing(nbytes), argument(address, nbytes), release)


def _function(native: Any, type_name: str, name: str) -> Any:
    found = _loader().clGetExtensionFunctionAddressForPlatform(_handle(native.platform), name.encode())
    if found == _ffi.NULL:
        raise DeviceError(f"{name} has no address.", "USM cannot be used.", "Use kind 'svm' or 'system'.")
    return _ffi.cast(type_name, found)
