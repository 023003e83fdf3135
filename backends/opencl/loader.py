"""Calls that pyopencl does not wrap, made through the OpenCL loader it has itself loaded."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from cffi import FFI

from umsh.errors import DeviceError

ffi = FFI()
ffi.cdef("""
void *clGetExtensionFunctionAddressForPlatform(void *platform, const char *name);
int32_t clGetDeviceInfo(void *device, uint32_t name, size_t nbytes, void *value, size_t *nbytes_out);
int32_t clSetEventCallback(void *event, int32_t status, void *function, void *user);
typedef void *(*host_alloc)(void *, const uint64_t *properties, size_t nbytes, uint32_t align, int32_t *code);
typedef void *(*shared_alloc)(void *, void *device, const uint64_t *, size_t, uint32_t align, int32_t *code);
typedef int32_t (*mem_free)(void *context, void *pointer);
""")


@lru_cache(maxsize=1)
def loader() -> Any:
    """The mapped libOpenCL; opening another one by name could show other devices."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.partition("/")[2]
        if "libOpenCL" in path:
            return ffi.dlopen("/" + path)
    raise DeviceError(
        "No OpenCL loader is mapped in this process.", "The driver cannot be used.", "Reinstall pyopencl."
    )


def handle(item: Any) -> Any:
    """The cl_* pointer of a pyopencl object."""
    return ffi.cast("void *", item.int_ptr)


def extension(native: Any, type_name: str, name: str) -> Any:
    """An extension function of a pyopencl device's platform; DeviceError where it has no address."""
    found = loader().clGetExtensionFunctionAddressForPlatform(handle(native.platform), name.encode())
    if found == ffi.NULL:
        raise DeviceError(
            f"{name} has no address.", "The extension cannot be used.", "Use memory kind 'svm' or 'system'."
        )
    return ffi.cast(type_name, found)
