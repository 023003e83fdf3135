"""One opened CUDA device: facts, memory kinds, allocation, streams; its primary context."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from umsh.backends.cpu_agent import CpuAgent
from umsh.backends.cuda import memory as kinds_of
from umsh.backends.cuda.agent import LOCKS, CudaAgent
from umsh.backends.cuda.calls import check, check_process, driver
from umsh.backends.cuda.copy import copied
from umsh.backends.cuda.facts import read_attributes, read_facts
from umsh.backends.cuda.kinds import OWN_PAGES, memory_kinds
from umsh.backends.cuda.launch import Launcher
from umsh.backends.cuda.stream import CudaStream, WholeDevice
from umsh.backends.cuda.vmm import host_vmm
from umsh.backends.driver import Device, Fact, Memory, Stream
from umsh.backends.pages import Pages
from umsh.errors import AdoptError, DeviceError, NeedError, UnsupportedError
from umsh.machine import MemoryInfo, check_room, group_limits, read_meminfo, usable_memory
from umsh.mechanism import MemoryKind

CAPABILITY_MIN = (7, 0)  # system-scope acquire and release, independent thread scheduling
DLPACK_CUDA = 2
# A GPU thread steps several times slower than a CPU core, and what it stores takes a microsecond to
# arrive: delays of the CPU must last as long, or the agents never meet inside a critical section.
CPU_PACE = 8


class CudaDevice(Device):
    """A CUDA device through its primary context, the one that PyTorch, CuPy and the others use."""

    driver = "cuda"

    def __init__(self, index: int) -> None:
        native = driver()
        self.index = self.ordinal = index
        (self.native,) = check(native.cuDeviceGet(index), "cuDeviceGet")
        self.attributes = read_attributes(self.native)
        self.capability = (
            self.attributes["compute_capability_major"],
            self.attributes["compute_capability_minor"],
        )
        self._facts = read_facts(self.native)
        self.name = str(self._facts["name"])
        if self.capability < CAPABILITY_MIN:
            raise DeviceError(
                f"{self.name} has compute capability {self.capability[0]}.{self.capability[1]}.",
                "umsh needs 7.0: system-scope acquire and release.",
                "Use umsh's OpenCL driver, or a newer device.",
            )
        self.one_pointer = bool(self.attributes["can_use_host_pointer_for_registered_mem"])
        self.host_numa_id = self.attributes["host_numa_id"]
        self.dlpack_device = (DLPACK_CUDA, index)
        self._kinds = {kind.name: kind for kind in memory_kinds(self._facts)}
        (self.context,) = check(native.cuDevicePrimaryCtxRetain(self.native), "cuDevicePrimaryCtxRetain")
        with self.current():
            self.copies = CudaStream(self)
            self._whole = WholeDevice(self)
            self.gpu = CudaAgent(self, Launcher(self, ExitStack()))
        self.cpu = CpuAgent(check_process, CPU_PACE)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the device's context this thread's for a while; the caller's own is put back."""
        native = driver()
        check(native.cuCtxPushCurrent(self.context), "cuCtxPushCurrent")
        try:
            yield
        finally:
            native.cuCtxPopCurrent()

    def facts(self) -> Mapping[str, Fact]:
        return {"device": self.name, **self._facts}

    def memory_kinds(self) -> tuple[MemoryKind, ...]:
        return tuple(self._kinds.values())

    def allocate(self, kind: str, nbytes: int, pages: str, shared: bool = False) -> Memory:
        check_process()
        found = self._kind(kind, pages)
        if nbytes < 1:
            raise NeedError(f"{nbytes} bytes were asked for.", "Nothing was allocated.", "Ask for 1 or more.")
        if shared and found.pages != OWN_PAGES:
            raise UnsupportedError(
                f"Memory kind {kind!r} is the driver's own and cannot be lent to another process.",
                "Nothing was allocated.",
                "Use 'registered' or, where the GPU walks host page tables, 'system'.",
            )
        check_room(nbytes, self._host_room())
        with self.current():
            if found.pages == OWN_PAGES:
                return kinds_of.OwnMemory(self, found, Pages(nbytes, pages, shared=shared))
            if found.name == "copy":
                return copied(self, found, nbytes, own_pages=pages == "4k")
            make = {"managed": kinds_of.managed, "host-vmm": host_vmm}.get(found.name, kinds_of.pinned)
            return make(self, found, nbytes)

    def adopt(self, kind: str, address: int, nbytes: int, keep: object) -> Memory:
        check_process()
        found = self._kind(kind, self._kinds[kind].pages[0] if kind in self._kinds else "")
        if nbytes < 1:
            raise AdoptError("The memory holds 0 bytes.", "Nothing was bound.", "Bind at least one byte.")
        with self.current():
            if found.name in ("pinned", "pinned-wc"):
                return kinds_of.adopt_pinned(self, found, address, nbytes, keep)
            if found.pages == OWN_PAGES:
                return kinds_of.adopt_own(self, found, address, nbytes, keep)
        raise AdoptError(
            f"Memory kind {kind!r} is always allocated by the driver.",
            "Nothing was bound.",
            "Bind new memory and copy into it with umsh.write.",
        )

    def attach(self, handle: Mapping[str, Any]) -> Memory:
        check_process()
        found = self._kind(str(handle["kind"]), str(handle["pages"]))
        with self.current():
            return kinds_of.OwnMemory(self, found, Pages.attach(handle))

    def stream(self, native: object | None = None) -> Stream:
        """The user's stream; None stands for all of the device's work, whatever stream it is on."""
        check_process()
        return self._whole if native is None else CudaStream(self, native)

    def memory_info(self) -> tuple[int, int, str]:
        check_process()
        with self.current():
            free, total = check(driver().cuMemGetInfo(), "cuMemGetInfo")
        unified = bool(self.attributes["integrated"])
        info = usable_memory(unified, (int(free), int(total)), read_meminfo(), group_limits())
        return info.usable_bytes, info.total_bytes, info.source if unified else "cuMemGetInfo"

    def _host_room(self) -> MemoryInfo:
        """What the CPU's memory can still give: every kind here takes its bytes there, copies included."""
        return usable_memory(True, None, read_meminfo(), group_limits())

    def clock_ns(self) -> int:
        return time.perf_counter_ns()

    def lock_algorithms(self) -> Mapping[str, str]:
        return dict.fromkeys(LOCKS, "")

    def _kind(self, name: str, pages: str) -> MemoryKind:
        found = self._kinds.get(name)
        missing = "unknown to this driver" if found is None else found.absent
        if found is not None and not missing and pages not in found.pages:
            missing = f"no {pages!r} pages, only {', '.join(found.pages)}"
        if missing or found is None:
            raise UnsupportedError(
                f"Memory kind {name!r} with {pages!r} pages is not to be had on {self.name}: {missing}.",
                "Nothing was allocated.",
                f"Kinds here: {', '.join(kind.name for kind in self._kinds.values() if not kind.absent)}.",
            )
        return found


_devices: dict[tuple[int, int], CudaDevice] = {}


def opened(index: int, count: int) -> CudaDevice:
    """Device `index` of `count` visible ones; the same object when this process opened it before."""
    if not 0 <= index < count:
        raise DeviceError(
            f"Device {index} was asked for and {count} are visible.",
            "No device was opened.",
            f"Use 0 to {count - 1}.",
        )
    key = (os.getpid(), index)
    if key not in _devices:
        _devices[key] = CudaDevice(index)
    return _devices[key]
