"""Memory kind host-vmm: cuMemCreate on the CPU's NUMA node, mapped for both agents at one address."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from umsh.backends.cuda.calls import check, driver
from umsh.backends.cuda.memory import CudaMemory, driver_backing, released
from umsh.mechanism import MemoryKind

if TYPE_CHECKING:
    from umsh.backends.cuda.device import CudaDevice


def host_vmm(device: CudaDevice, kind: MemoryKind, nbytes: int) -> CudaMemory:
    """Pinned memory of the device's host NUMA node; sizes round up to the driver's granularity."""
    native = driver()
    node = _location(native.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA, max(0, device.host_numa_id))
    asked = native.CUmemAllocationProp()
    asked.type = native.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    asked.location = node
    minimum = native.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    (unit,) = check(native.cuMemGetAllocationGranularity(asked, minimum), "cuMemGetAllocationGranularity")
    size = -(-nbytes // unit) * unit
    with ExitStack() as undo:
        (handle,) = check(native.cuMemCreate(size, asked, 0), f"cuMemCreate of {size} bytes on the host")
        undo.callback(lambda: released(native.cuMemRelease(handle), "cuMemRelease"))
        (pointer,) = check(native.cuMemAddressReserve(size, 0, 0, 0), "cuMemAddressReserve")
        undo.callback(lambda: released(native.cuMemAddressFree(pointer, size), "cuMemAddressFree"))
        check(native.cuMemMap(pointer, size, 0, handle, 0), "cuMemMap")
        undo.callback(lambda: released(native.cuMemUnmap(pointer, size), "cuMemUnmap"))
        gpu = _location(native.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal)
        check(native.cuMemSetAccess(pointer, size, [_access(node), _access(gpu)], 2), "cuMemSetAccess")
        ctypes.memset(int(pointer), 0, nbytes)
        memory = CudaMemory(device, kind, nbytes, driver_backing(nbytes), undo.pop_all())
    memory.place(int(pointer), int(pointer))
    return memory


def _location(kind: Any, number: int) -> Any:
    location = driver().CUmemLocation()
    location.type, location.id = kind, number
    return location


def _access(location: Any) -> Any:
    native = driver()
    access = native.CUmemAccessDesc()
    access.location = location
    access.flags = native.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return access
