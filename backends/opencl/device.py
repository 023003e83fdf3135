"""One opened OpenCL device: facts, memory kinds, allocation, streams."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from umsh.backends.cpu_agent import CpuAgent
from umsh.backends.driver import Device, Fact, Memory
from umsh.backends.opencl.gpu_agent import LOCKS, OpenCLAgent
from umsh.backends.opencl.memory import CopyMemory, SystemMemory, adopted_memory, svm_memory
from umsh.backends.opencl.quirks import quirks_of
from umsh.backends.opencl.runtime import calling, check_process
from umsh.backends.opencl.stream import OpenCLStream
from umsh.backends.opencl.usm import usm_kinds, usm_memory
from umsh.backends.pages import Pages, not_writable
from umsh.errors import AdoptError, DeviceError, NeedError, UnsupportedError
from umsh.machine import (
    MemoryInfo,
    check_room,
    group_limits,
    machine_facts,
    read_meminfo,
    usable_memory,
)
from umsh.mechanism import MemoryKind

CHECKED_BYTES = 1 << 20  # smaller allocations cannot starve a machine, and asking takes longer than they do
ALIGNMENT_ADOPTED = 4  # bytes; the widest single access of a flag or pattern word


class OpenCLDevice(Device):
    """An OpenCL device that shares memory with the CPU."""

    driver = "opencl"

    def __init__(self, index: int, native: Any) -> None:
        import pyopencl as cl

        self.index = index
        self.native = native
        self.name = str(native.name)
        self.is_cpu = bool(native.type & cl.device_type.CPU)
        self.quirks = quirks_of(native)
        with calling("clCreateContext"):
            self.context = cl.Context([native])
            self._stream = OpenCLStream(cl.CommandQueue(self.context, native))
        self._kinds = {kind.name: kind for kind in _kinds(native, self.quirks.system_note)}
        self.cpu = CpuAgent(check_process)
        self.gpu = OpenCLAgent(self)

    def facts(self) -> Mapping[str, Fact]:
        native = self.native
        return {
            "device": self.name,
            "device_type": "cpu" if self.is_cpu else "gpu",
            "platform_name": str(native.platform.name),
            "driver_version": str(native.platform.version),
            "device_version": str(native.version),
            "vendor_id": int(native.vendor_id),
            "unified": bool(self.is_cpu or native.host_unified_memory),
            "svm_capabilities": int(native.svm_capabilities),
            "svm_fine_system": not self._kinds["system"].note and not self._kinds["system"].absent,
            "usm": not self._kinds["usm-host"].absent,
            "compute_units": int(native.max_compute_units),
            "work_group_items_max": int(native.max_work_group_size),
            "device_memory_bytes": int(native.global_mem_size),
            "allocation_bytes_max": int(native.max_mem_alloc_size),
            "groups_at_once": self.quirks.groups_max,
            "items_progress": self.quirks.items_progress,
        }

    def memory_kinds(self) -> tuple[MemoryKind, ...]:
        return tuple(self._kinds.values())

    def missing(self, kind: str) -> str:
        """The fact for which `kind` is not to be had here; "" when it is."""
        found = self._kinds.get(kind)
        return "not a memory kind of this driver" if found is None else found.absent

    def pages_of(self, kind: str) -> str:
        """The plainest page kind of a memory kind."""
        return self._kinds[kind].pages[0]

    def allocate(self, kind: str, nbytes: int, pages: str, shared: bool = False) -> Memory:
        check_process()
        found = self._kind(kind, pages)
        if nbytes < 1:
            raise NeedError(f"{nbytes} bytes were asked for.", "Nothing was allocated.", "Use 1 or more.")
        if shared and found.name != "system":
            raise UnsupportedError(
                f"{found.name!r} memory is the OpenCL runtime's own and stays in one process.",
                "Nothing was allocated.",
                "Use memory kind 'system' for shared=True.",
            )
        if pages != "hugetlb" and nbytes >= CHECKED_BYTES:  # huge pages are set aside already
            check_room(nbytes * (2 if found.name == "copy" else 1), self._memory_info())
        if found.name == "svm":
            return svm_memory(self, found, nbytes)
        if found.name in ("usm-host", "usm-shared"):
            return usm_memory(self, found, nbytes)
        own = Pages(nbytes, pages, shared)
        return SystemMemory(found, own) if found.name == "system" else CopyMemory(self, found, own)

    def adopt(self, kind: str, address: int, nbytes: int, keep: object) -> Memory:
        check_process()
        found = self._kinds.get(kind)
        reason = self.missing(kind)
        if not reason and kind not in ("system", "copy"):
            reason = f"{kind!r} memory is made by the OpenCL runtime, never taken over"
        if not reason and (nbytes < 1 or address == 0):
            reason = f"{nbytes} bytes at {address:#x} are no memory"
        if not reason and address % ALIGNMENT_ADOPTED:
            reason = f"address {address:#x} is not {ALIGNMENT_ADOPTED}-byte aligned"
        reason = reason or not_writable(address, nbytes)
        if reason or found is None:
            raise AdoptError(
                f"Memory at {address:#x} does not qualify: {reason}.",
                "Nothing was bound; the memory is as it was.",
                "Give writable, 4-byte aligned memory, or let bind() allocate and write() copy.",
            )
        if kind == "copy":
            return CopyMemory(self, found, (address, nbytes, keep))
        return adopted_memory(found, address, nbytes, keep)

    def attach(self, handle: Mapping[str, Any]) -> Memory:
        check_process()
        if handle.get("driver") != self.driver or handle.get("kind") != "system":
            raise DeviceError(
                f"The handle is of {handle.get('driver')} {handle.get('kind')!r} memory.",
                "Nothing was mapped.",
                "Attach on a device of the same driver.",
            )
        return SystemMemory(self._kind("system", handle["pages"]), Pages.attach(handle))

    def stream(self, native: object | None = None) -> OpenCLStream:
        import pyopencl as cl

        check_process()
        if native is None:
            return self._stream
        with calling("clGetCommandQueueInfo"):
            own = isinstance(native, cl.CommandQueue) and native.context == self.context
        if not own:
            raise DeviceError(
                f"{native!r} is not a queue of this device's context.",
                "It cannot be ordered with the region's hand-overs.",
                "Make it with pyopencl.CommandQueue(device.context).",
            )
        return OpenCLStream(native)

    def memory_info(self) -> tuple[int, int, str]:
        info = self._memory_info()
        return info.usable_bytes, info.total_bytes, info.source

    def clock_ns(self) -> int:
        return time.perf_counter_ns()

    def lock_algorithms(self) -> Mapping[str, str]:
        return dict.fromkeys(LOCKS, "")

    def _memory_info(self) -> MemoryInfo:
        unified = self.is_cpu or bool(self.native.host_unified_memory)
        # OpenCL tells no free figure; the size is the only one a discrete device gives.
        size = int(self.native.global_mem_size)
        return usable_memory(unified, (size, size), read_meminfo(), group_limits())

    def _kind(self, name: str, pages: str) -> MemoryKind:
        found, missing = self._kinds.get(name), self.missing(name)
        if found is not None and not missing and pages not in found.pages:
            missing = f"no {pages!r} pages, only {', '.join(found.pages)}"
            if pages == "hugetlb" and "4k" in found.pages:
                missing = "no huge pages are set aside (vm.nr_hugepages is 0)"
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

    own_pages = ("4k", "thp", "hugetlb") if machine_facts()["hugetlb_pages"] else ("4k", "thp")
    has, caps = native.svm_capabilities, cl.device_svm_capabilities
    fine, atomics = bool(has & caps.FINE_GRAIN_BUFFER), bool(has & caps.ATOMICS)
    system = bool(has & caps.FINE_GRAIN_SYSTEM)
    return (
        MemoryKind(
            "svm", ("driver",), "WB", "WB", "two-way", fine, fine and atomics,
            absent="" if fine else "no CL_DEVICE_SVM_FINE_GRAIN_BUFFER",
        ),
        MemoryKind(
            "system", own_pages, "WB", "WB", "two-way", system, system and atomics,
            absent="" if system or system_note else "no CL_DEVICE_SVM_FINE_GRAIN_SYSTEM",
            note="" if system else system_note,
        ),
        *usm_kinds(native),
        MemoryKind("copy", own_pages, "WB", "WB", "none", True, False, note="two memories and a copy"),
    )  # fmt: skip
