"""Calls as much of the driver API and NVML as one device without a display can execute; prints what failed.

Run with the client's libraries on the search path, on a server whose session writes UMSH_SESSION_CALLS: that
list is what "executed on a device" means in docs/remote-coverage.md. Argument: a module with kernel `store`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from pathlib import Path

from call_graphs import code
from call_lists import current, do, failed, group, make, succeeded

PTX = b""".version 7.0
.target sm_70
.address_size 64
.global .u32 counter;
.visible .entry store(.param .u64 to, .param .u64 value)
{ .reg .u64 %a, %v; ld.param.u64 %a, [to]; ld.param.u64 %v, [value]; st.global.u64 [%a], %v; ret; }
"""


def start() -> None:
    do("cuInit", 0)
    context = make("cuDevicePrimaryCtxRetain", 0)
    do("cuCtxSetCurrent", context)


def streams_and_events() -> None:
    stream, other = make("cuStreamCreate", 1), make("cuStreamCreateWithPriority", 1, 0)
    for name, kind in (("Priority", c_int), ("Flags", c_uint), ("Id", c_uint64), ("Device", c_int)):
        do(f"cuStreamGet{name}", stream, byref(kind()))
    first, second = make("cuEventCreate", 0), make("cuEventCreate", 0)
    do("cuEventRecord", first, stream)
    do("cuEventRecordWithFlags", second, stream, 0)
    do("cuStreamWaitEvent", other, second, 0)
    do("cuEventSynchronize", second)
    do("cuEventQuery", second)
    do("cuEventElapsedTime", byref(c_float()), first, second)
    do("cuStreamSynchronize", other)
    do("cuStreamQuery", other)
    value = (c_ubyte * 64)()
    do("cuStreamGetAttribute", stream, 3, value)
    do("cuStreamSetAttribute", stream, 3, value)
    do("cuStreamCopyAttributes", other, stream)
    word = make("cuMemAlloc_v2", c_size_t(16), kind=c_uint64)
    do("cuStreamWriteValue32_v2", stream, word, 7, 0)
    do("cuStreamWaitValue32_v2", stream, word, 7, 0)
    do("cuStreamWriteValue64_v2", stream, word, c_uint64(9), 0)
    do("cuStreamWaitValue64_v2", stream, word, c_uint64(9), 0)
    do("cuStreamIsCapturing", stream, byref(c_int()))
    do("cuCtxSynchronize")
    for name, handle in (("Event", first), ("Event", second), ("Stream", stream), ("Stream", other)):
        do(f"cu{name}Destroy_v2", handle)


def memory() -> None:
    n = 4096
    a, b = (make("cuMemAlloc_v2", c_size_t(n), kind=c_uint64) for _ in range(2))
    pitched = c_uint64()
    do("cuMemAllocPitch_v2", byref(pitched), byref(c_size_t()), c_size_t(100), c_size_t(8), 4)
    stream = make("cuStreamCreate", 1)
    for bits in (8, 16, 32):
        do(f"cuMemsetD{bits}_v2", a, 5, c_size_t(64))
        do(f"cuMemsetD{bits}Async", a, 5, c_size_t(64), stream)
        do(f"cuMemsetD2D{bits}_v2", a, c_size_t(256), 1, c_size_t(8), c_size_t(4))
        do(f"cuMemsetD2D{bits}Async", a, c_size_t(256), 1, c_size_t(8), c_size_t(4), stream)
    host = ctypes.create_string_buffer(n)
    do("cuMemcpyHtoD_v2", a, host, c_size_t(n))
    do("cuMemcpyHtoDAsync_v2", a, host, c_size_t(n), stream)
    do("cuMemcpyDtoD_v2", b, a, c_size_t(n))
    do("cuMemcpyDtoDAsync_v2", b, a, c_size_t(n), stream)
    do("cuMemcpyDtoH_v2", host, b, c_size_t(n))
    do("cuMemcpyDtoHAsync_v2", host, b, c_size_t(n), stream)
    do("cuMemcpy", a, b, c_size_t(n))
    do("cuMemcpyAsync", a, b, c_size_t(n), stream)
    do("cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t()))
    do("cuMemFreeAsync", make("cuMemAllocAsync", c_size_t(n), stream, kind=c_uint64), stream)
    for address in (a, b, pitched):
        do("cuMemFree_v2", address)


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Access(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int), ("flags", c_int)]


def pools() -> None:
    properties = (c_ubyte * 88)()
    properties[0], properties[8] = 1, 1  # pinned memory of a device
    pool, stream, value = make("cuMemPoolCreate", properties), make("cuStreamCreate", 1), c_uint64(0)
    for attribute in (1, 4, 5):
        do("cuMemPoolGetAttribute", pool, attribute, byref(value))
    do("cuMemPoolSetAttribute", pool, 4, byref(value))
    do("cuMemPoolGetAccess", byref(c_int()), pool, byref(Location(1, 0)))
    do("cuMemPoolSetAccess", pool, byref(Access(1, 0, 3)), c_size_t(1))
    address = make("cuMemAllocFromPoolAsync", c_size_t(4096), pool, stream, kind=c_uint64)
    do("cuMemFreeAsync", address, stream)
    do("cuStreamSynchronize", stream)
    do("cuMemPoolTrimTo", pool, c_size_t(0))
    default = make("cuDeviceGetDefaultMemPool", 0)
    make("cuDeviceGetMemPool", 0)
    do("cuDeviceSetMemPool", 0, default)
    do("cuMemGetDefaultMemPool", byref(c_void_p()), byref(Location(1, 0)), 1)
    do("cuMemGetMemPool", byref(c_void_p()), byref(Location(1, 0)), 1)
    do("cuMemPoolDestroy", pool)


def virtual_memory() -> None:
    wanted = (c_int * 8)(1, 0, 1, 0)
    size, at = c_size_t(), c_uint64()
    do("cuMemGetAllocationGranularity", byref(size), wanted, 0)
    do("cuMemAddressReserve", byref(at), size, c_size_t(0), c_uint64(0), c_uint64(0))
    handle = make("cuMemCreate", size, wanted, c_uint64(0), kind=c_uint64)
    do("cuMemMap", at, size, c_size_t(0), handle, c_uint64(0))
    do("cuMemSetAccess", at, size, byref(Access(1, 0, 3)), c_size_t(1))
    do("cuMemGetAccess", byref(c_uint64()), byref(Location(1, 0)), at)
    do("cuMemGetAllocationPropertiesFromHandle", (c_int * 8)(), handle)
    do("cuMemRelease", make("cuMemRetainAllocationHandle", at, kind=c_uint64))
    do("cuMemsetD8_v2", at, 1, size)
    do("cuCtxSynchronize")
    do("cuMemUnmap", at, size)
    do("cuMemRelease", handle)
    do("cuMemAddressFree", at, size)


class ArrayShape(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


class Array3D(ctypes.Structure):
    _fields_ = [
        *((name, c_size_t) for name in ("width", "height", "depth")),
        ("format", c_int), ("channels", c_uint), ("flags", c_uint),
    ]  # fmt: skip


def arrays_and_textures() -> None:
    line, shape = make("cuArrayCreate_v2", byref(ArrayShape(64, 0, 1, 1))), ArrayShape()
    other = make("cuArrayCreate_v2", byref(ArrayShape(64, 0, 1, 1)))
    do("cuArrayGetDescriptor_v2", byref(shape), line)
    cube = make("cuArray3DCreate_v2", byref(Array3D(16, 16, 4, 0x20, 1, 2)))
    do("cuArray3DGetDescriptor_v2", byref(Array3D()), cube)
    levels = make("cuMipmappedArrayCreate", byref(Array3D(16, 16, 0, 0x20, 1, 0)), 3)
    do("cuMipmappedArrayGetLevel", byref(c_void_p()), levels, 1)
    host, device = ctypes.create_string_buffer(64), make("cuMemAlloc_v2", c_size_t(64), kind=c_uint64)
    zero, n = c_size_t(0), c_size_t(64)
    do("cuMemcpyHtoA_v2", line, zero, host, n)
    do("cuMemcpyAtoH_v2", host, line, zero, n)
    do("cuMemcpyAtoA_v2", other, zero, line, zero, n)
    do("cuMemcpyAtoD_v2", device, line, zero, n)
    do("cuMemcpyDtoA_v2", line, zero, device, n)
    resource, texture = (c_uint64 * 18)(), (c_uint * 32)()
    resource[1] = line.value or 0
    tex = make("cuTexObjectCreate", resource, texture, None, kind=c_uint64)
    do("cuTexObjectGetResourceDesc", (c_uint64 * 18)(), tex)
    do("cuTexObjectGetTextureDesc", (c_uint * 32)(), tex)
    resource[1] = cube.value or 0
    surface = make("cuSurfObjectCreate", resource, kind=c_uint64)
    do("cuSurfObjectGetResourceDesc", (c_uint64 * 18)(), surface)
    do("cuTexObjectDestroy", tex)
    do("cuSurfObjectDestroy", surface)
    dims, strides, box, ones = (
        (c_uint64 * 2)(64, 64),
        (c_uint64 * 1)(256),
        (c_uint * 2)(16, 16),
        (c_uint * 2)(1, 1),
    )
    tensor, memory_of = (c_uint64 * 32)(), make("cuMemAlloc_v2", c_size_t(64 * 256), kind=c_uint64)
    aligned = ctypes.addressof(tensor) + -ctypes.addressof(tensor) % 64
    do(
        "cuTensorMapEncodeTiled",
        c_void_p(aligned),
        7,
        2,
        c_void_p(memory_of.value),
        dims,
        strides,
        box,
        ones,
        0,
        0,
        0,
        0,
    )
    do("cuTensorMapReplaceAddress", c_void_p(aligned), c_void_p(memory_of.value))
    do("cuMipmappedArrayDestroy", levels)
    for array in (line, other, cube):
        do("cuArrayDestroy", array)


def contexts_and_devices() -> None:
    for limit in (0, 1, 2):
        value = c_size_t()
        do("cuCtxGetLimit", byref(value), limit)
        do("cuCtxSetLimit", limit, value)
    do("cuCtxGetCacheConfig", byref(c_int()))
    do("cuCtxSetCacheConfig", 1)
    do("cuCtxResetPersistingL2Cache")
    do("cuDeviceGetGraphMemAttribute", 0, 0, byref(c_uint64()))
    do("cuDeviceGraphMemTrim", 0)
    do("cuDeviceGetTexture1DLinearMaxWidth", byref(c_size_t()), 0x20, 1, 0)
    do("cuDeviceGetExecAffinitySupport", byref(c_int()), 0, 0)
    do("cuDeviceGetHostAtomicCapabilities", (c_uint * 1)(), (c_int * 1)(0), 1, 0)
    resource, group_of, count, rest = (c_ubyte * 144)(), (c_ubyte * 144)(), c_uint(1), (c_ubyte * 144)()
    do("cuDeviceGetDevResource", 0, resource, 1)
    do("cuCtxGetDevResource", current(), resource, 1)
    do("cuDevSmResourceSplitByCount", group_of, byref(count), resource, rest, 0, 16)
    description, green, made = c_void_p(), c_void_p(), c_void_p()
    do("cuDevResourceGenerateDesc", byref(description), group_of, 1)
    do("cuGreenCtxCreate", byref(green), description, 0, 1)
    do("cuGreenCtxStreamCreate", byref(made), green, 1, 0)
    do("cuGreenCtxGetDevResource", green, resource, 1)
    do("cuStreamDestroy_v2", made)
    do("cuGreenCtxDestroy", green)
    own = make("cuCtxCreate_v2", 0, 0)
    do("cuCtxDestroy_v2", own)


def main() -> int:
    group(start)
    image = Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else PTX
    for part in (
        streams_and_events,
        memory,
        pools,
        virtual_memory,
        arrays_and_textures,
        contexts_and_devices,
    ):
        group(part)
    group(lambda: code(image, b"store"))
    do("cuCtxSynchronize")
    try:
        import nvml_getters

        nvml_getters.run(failed, succeeded)
    except (ImportError, OSError) as error:
        failed.append(f"NVML: {error}")
    if listed := os.environ.get("UMSH_SUCCEEDED"):
        Path(listed).write_text("\n".join(sorted(succeeded)) + "\n")
    print(f"{len(succeeded)} calls succeeded, {len(failed)} did not")
    print("\n".join(failed))
    return 0 if len(succeeded) > 20 else 1


if __name__ == "__main__":
    sys.exit(main())
