"""One opened OpenCL device: facts, memory kinds, allocation, streams."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from umsh.backends.driver import Device, Fact, Memory
from umsh.backends.opencl.gpu_agent import OpenCLAgent
from umsh.backends.opencl.memory import CopyMemory, SvmMemory, SystemMemory
from umsh.backends.opencl.quirks import quirks_of
from umsh.backends.opencl.runtime import calling, check_process
from umsh.backends.opencl.stream import OpenCLStream
from umsh.backends.pages import Pages
from umsh.errors import AdoptError, UnsupportedError
from umsh.mechanism import MemoryKind

OWN_PAGES = ("4k", "thp", "hugetlb")


class OpenCLDevice(Device):
    """An OpenCL device that shares memory with the CPU."""

    driver = "opencl"

    def __init__(self, index: int, native: Any) -> None:
        import pyopencl as cl

        self.index = index
        self.native = native
        self.name = str(native.name)
        self.quirks = quirks_of(native)
        with calling("clCreateContext"):
            self.context = cl.Context([native])
            self._stream = OpenCLStream(cl.CommandQueue(self.context, native))
        self._kinds = {kind.name: kind for kind in _kinds(native, self.quirks.system_note)}
        self.gpu = OpenCLAgent(self)

    def facts(self) -> Mapping[str, Fact]:
        import pyopencl as cl

        native = self.native
        return {
            "device": self.name,
            "device_type": "gpu" if native.type & cl.device_type.GPU else "cpu",
            "platform": str(native.platform.name),
            "driver_version": str(native.platform.version),
            "device_version": str(native.version),
            "svm_capabilities": int(native.svm_capabilities),
            "compute_units": int(native.max_compute_units),
            "unified_memory": bool(native.host_unified_memory),
            "global_memory_bytes": int(native.global_mem_size),
            "groups_max": self.quirks.groups_max,
            "items_progress": self.quirks.items_progress,
        }

    def memory_kinds(self) -> tuple[MemoryKind, ...]:
        return tuple(self._kinds.values())

    def allocate(self, kind: str, nbytes: int, pages: str, shared: bool = False) -> Memory:
        check_process()
        found = self._kind(kind, pages)
        if found.name == "svm":
            return SvmMemory(self, found, nbytes)
        own = Pages(nbytes, pages)
        if found.name == "system":
            return SystemMemory(found, own, nbytes)
        return CopyMemory(self, found, own, nbytes)

    def adopt(self, kind: str, address: int, nbytes: int, keep: object) -> Memory:
        raise AdoptError("Adopting is not built yet.", "Nothing was bound.", "")

    def attach(self, handle: Mapping[str, Any]) -> Memory:
        raise UnsupportedError("Attaching is not built yet.", "Nothing was mapped.", "")

    def stream(self, native: object | None = None) -> OpenCLStream:
        check_process()
        return self._stream if native is None else OpenCLStream(native)

    def memory_info(self) -> tuple[int, int, str]:
        import os

        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES"), "sysconf"

    def clock_ns(self) -> int:
        return time.perf_counter_ns()

    def _kind(self, name: str, pages: str) -> MemoryKind:
        found = self._kinds.get(name)
        missing = "unknown to this driver" if found is None else found.absent
        if not missing and found is not None and pages not in found.pages:
            missing = f"no {pages!r} pages, only {', '.join(found.pages)}"
        if missing or found is None:
            raise UnsupportedError(
                f"Memory kind {name!r} with {pages!r} pages is not to be had on {self.name}: {missing}.",
                "Nothing was allocated.",
                f"Kinds here: {', '.join(k.name for k in self._kinds.values() if not k.absent)}.",
            )
        return found


def _kinds(native: Any, system_note: str) -> tuple[MemoryKind, ...]:
    """Every memory kind of this driver, absent ones with their missing fact."""
    import pyopencl as cl

    has = native.svm_capabilities
    caps = cl.device_svm_capabilities
    fine, atomics = bool(has & caps.FINE_GRAIN_BUFFER), bool(has & caps.ATOMICS)
    system = bool(has & caps.FINE_GRAIN_SYSTEM)
    both = "two-way"
    return (
        MemoryKind("svm", ("driver",), "WB", "WB", both, fine, fine and atomics,
                   absent="" if fine else "no CL_DEVICE_SVM_FINE_GRAIN_BUFFER"),
        MemoryKind("system", OWN_PAGES, "WB", "WB", both, system, system and atomics,
                   absent="" if system or system_note else "no CL_DEVICE_SVM_FINE_GRAIN_SYSTEM",
                   note="" if system else system_note),
        MemoryKind("copy", OWN_PAGES, "WB", "?", "none", True, False, note="two memories and a copy"),
    )  # fmt: skip
