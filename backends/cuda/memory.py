"""CUDA memory kinds that both agents reach: pinned, registered, system, managed, host-vmm."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from umsh.backends.cuda.calls import LOST, check, driver, forked, name_of
from umsh.backends.driver import Event, Memory, Stream
from umsh.backends.pages import Pages, not_writable
from umsh.errors import AdoptError, DeviceError, OutOfMemory, UmshError
from umsh.mechanism import Backing, MemoryKind

if TYPE_CHECKING:
    from umsh.backends.cuda.device import CudaDevice

# One cuMemHostRegister of 512 GiB or more fails whatever memory is free.
REGISTER_NBYTES_MAX = 1 << 38
DEINITIALISED = 4
ALREADY_REGISTERED = 712


class CudaMemory(Memory):
    """Memory whose undo stack gives everything back in reverse order, exactly once."""

    def __init__(
        self, device: CudaDevice, kind: MemoryKind, nbytes: int, backing: Backing, undo: ExitStack
    ) -> None:
        self.device = device
        self.kind = kind
        self.nbytes = nbytes
        self.backing = backing
        self._undo: ExitStack | None = undo

    def place(self, address: int, device_address: int) -> None:
        self.address = address
        self.device_address = self.kernel_arg = device_address

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def free(self) -> None:
        undo, self._undo = getattr(self, "_undo", None), None
        if undo is None or forked():  # the parent still uses what a forked child inherited
            return
        with self.device.current():
            undo.close()

    def __del__(self) -> None:
        self.free()


def released(result: tuple[Any, ...], doing: str) -> None:
    """Check a call that gives something back; after a shutdown or a lost context it is gone already."""
    if int(result[0]) != DEINITIALISED and int(result[0]) not in LOST:
        check(result, doing)


def driver_backing(nbytes: int) -> Backing:
    """Pages that the driver chose and does not tell of."""
    return Backing("driver", 0, nbytes, 0, "driver")


def adopted_backing(nbytes: int) -> Backing:
    return Backing("driver", 0, nbytes, 0, "adopted")


def allocate_host(undo: ExitStack, nbytes: int, write_combined: bool) -> tuple[int, int]:
    """cuMemHostAlloc, portable and mapped: (CPU address, device address). Zeroed."""
    native = driver()
    flags = native.CU_MEMHOSTALLOC_PORTABLE | native.CU_MEMHOSTALLOC_DEVICEMAP
    if write_combined:
        flags |= native.CU_MEMHOSTALLOC_WRITECOMBINED
    (pointer,) = check(native.cuMemHostAlloc(nbytes, flags), f"cuMemHostAlloc of {nbytes} bytes")
    address = int(pointer)
    undo.callback(lambda: released(native.cuMemFreeHost(address), "cuMemFreeHost"))
    ctypes.memset(address, 0, nbytes)
    return address, device_pointer(address)


def device_pointer(address: int) -> int:
    (pointer,) = check(driver().cuMemHostGetDevicePointer(address, 0), "cuMemHostGetDevicePointer")
    return int(pointer)


def register(undo: ExitStack, address: int, nbytes: int, one_pointer: bool) -> int:
    """Pin and map CPU memory, in pieces where one call cannot; all or nothing. Returns the device address.

    one_pointer: CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM; without it pieces would not be contiguous.
    Raises AdoptError naming the driver's reason, OutOfMemory.
    """
    native = driver()
    if nbytes > REGISTER_NBYTES_MAX and not one_pointer:
        raise AdoptError(
            f"{nbytes} bytes take several registrations; CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0.",
            "Nothing was registered.",
            f"Bind at most {REGISTER_NBYTES_MAX} bytes at a time.",
        )
    flags = native.CU_MEMHOSTREGISTER_PORTABLE | native.CU_MEMHOSTREGISTER_DEVICEMAP
    with ExitStack() as pieces:
        for at in range(0, nbytes, REGISTER_NBYTES_MAX):
            piece, size = address + at, min(REGISTER_NBYTES_MAX, nbytes - at)
            (code,) = native.cuMemHostRegister(piece, size, flags)
            if int(code):
                raise _refused(int(code), size)
            pieces.callback(_unregister, piece)
        pointer = device_pointer(address)
        undo.push(pieces.pop_all())
    return pointer


def _unregister(address: int) -> None:
    released(driver().cuMemHostUnregister(address), "cuMemHostUnregister")


def _refused(code: int, nbytes: int) -> UmshError:
    if code == 2:
        return OutOfMemory(f"{nbytes} bytes could not be pinned.", "Nothing was registered.", "Ask for less.")
    if code in LOST:
        return DeviceError("The CUDA context is lost.", "Nothing was registered.", "Start a new process.")
    cause = {
        ALREADY_REGISTERED: "the range overlaps memory that is registered already",
        1: "the range is read-only, partly unmapped or not ordinary memory of this process",
        800: "the driver may not pin this memory",
        801: "the driver cannot register this kind of memory",
    }.get(code, "the driver gave no reason")
    return AdoptError(
        f"cuMemHostRegister of {nbytes} bytes gave {name_of(code)} ({code}): {cause}.",
        "Nothing was registered; the memory is as it was.",
        "Bind new memory and copy into it with umsh.write.",
    )


def pinned(device: CudaDevice, kind: MemoryKind, nbytes: int) -> CudaMemory:
    """cuMemHostAlloc: CPU memory the driver pins and maps; write-combined for kind "pinned-wc"."""
    with ExitStack() as undo:
        places = allocate_host(undo, nbytes, kind.cpu_policy == "WC")
        memory = CudaMemory(device, kind, nbytes, driver_backing(nbytes), undo.pop_all())
    memory.place(*places)
    return memory


class OwnMemory(CudaMemory):
    """Our own pages: passed by address where the GPU walks them ("system"), else registered."""

    def __init__(self, device: CudaDevice, kind: MemoryKind, pages: Pages) -> None:
        self._pages = pages
        with ExitStack() as undo:
            undo.callback(pages.free)
            pointer = pages.address
            if kind.name == "registered":
                pointer = register(undo, pages.address, pages.nbytes, device.one_pointer)
            super().__init__(device, kind, pages.nbytes, pages.backing, undo.pop_all())
        self.place(pages.address, pointer)

    def share(self) -> Mapping[str, Any]:
        return {"driver": "cuda", "kind": self.kind.name, **self._pages.share()}


def managed(device: CudaDevice, kind: MemoryKind, nbytes: int) -> CudaMemory:
    """cuMemAllocManaged, visible from every stream. Refused beyond free device memory: it would thrash."""
    native = driver()
    free, _total = check(native.cuMemGetInfo(), "cuMemGetInfo")
    if nbytes > free:
        raise OutOfMemory(
            f"{nbytes} bytes of managed memory were asked for and the device has {free} bytes free.",
            "Nothing was allocated.",
            "Ask for less, or bind CPU memory with mechanism='pinned.driver:WA/RA'.",
        )
    flags = int(native.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)
    with ExitStack() as undo:
        (pointer,) = check(native.cuMemAllocManaged(nbytes, flags), f"cuMemAllocManaged of {nbytes} bytes")
        undo.callback(lambda: released(native.cuMemFree(pointer), "cuMemFree"))
        ctypes.memset(int(pointer), 0, nbytes)
        memory = CudaMemory(device, kind, nbytes, driver_backing(nbytes), undo.pop_all())
    memory.place(int(pointer), int(pointer))
    return memory


def adopt_pinned(device: CudaDevice, kind: MemoryKind, address: int, nbytes: int, keep: object) -> CudaMemory:
    """Memory that CUDA pinned for someone else. AdoptError for pointers CUDA does not know as host memory."""
    native = driver()
    attribute = native.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    for at in (address, address + nbytes - 1):
        code, kind_of = native.cuPointerGetAttribute(attribute, at)
        if int(code) or int(kind_of) != int(native.CUmemorytype.CU_MEMORYTYPE_HOST):
            raise AdoptError(
                f"Address {at:#x} is not pinned CPU memory of this process.",
                "Nothing was bound.",
                "Bind ordinary memory with mechanism='registered.4k:WA/RA'.",
            )
    memory = CudaMemory(device, kind, nbytes, adopted_backing(nbytes), ExitStack())
    memory.keep = keep
    memory.place(address, device_pointer(address))
    return memory


def adopt_own(device: CudaDevice, kind: MemoryKind, address: int, nbytes: int, keep: object) -> CudaMemory:
    """Ordinary memory of the caller, registered for the GPU or passed by address; all or nothing.

    Raises AdoptError: read-only, partly unmapped, registered already, or refused by the driver.
    """
    reason = not_writable(address, nbytes)
    if reason:
        raise AdoptError(
            f"The memory cannot be shared: {reason}.",
            "Nothing was bound.",
            "Bind new memory and copy into it with umsh.write; map files with MAP_PRIVATE or read-write.",
        )
    with ExitStack() as undo:
        pointer = address
        if kind.name == "registered":
            pointer = register(undo, address, nbytes, device.one_pointer)
        memory = CudaMemory(device, kind, nbytes, adopted_backing(nbytes), undo.pop_all())
    memory.keep = keep
    memory.place(address, pointer)
    return memory
