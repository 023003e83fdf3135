"""Memory kinds of the CUDA driver, each with the device attributes it needs; a pure function of facts.

Sources: CUDA C++ Programming Guide (unified memory, table of page sizes; page-locked memory and
atomics), CUDA for Tegra application note (memory table), libcu++ (conditions of system-scope atomics).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from umsh.backends.driver import Fact
from umsh.mechanism import MemoryKind

OWN_PAGES = ("4k", "thp", "hugetlb")
ORDERED_ONLY = "loads and stores only: HOST_NATIVE_ATOMIC_SUPPORTED is 0, so read-modify-write is not atomic"


def memory_kinds(facts: Mapping[str, Fact]) -> tuple[MemoryKind, ...]:
    """Every kind this driver knows on a device with these attributes; absent ones name the attribute."""
    kinds = (
        _pinned(facts),
        _registered(facts),
        _system(facts),
        _managed(facts),
        _host_vmm(facts),
        _write_combined(facts),
        MemoryKind(
            "copy", ("driver", "4k"), "WB", "WB", "none", documented=True, inside=False,
            note="pinned with 'driver' pages; pageable, as frameworks copy by default, with '4k'",
        ),
    )  # fmt: skip
    return tuple(replace(kind, documented=False, inside=False) if kind.absent else kind for kind in kinds)


def coherence_of(facts: Mapping[str, Fact]) -> str:
    """What the hardware keeps coherent for CPU memory that the GPU maps."""
    return "two-way" if facts["pageable_memory_access_uses_host_page_tables"] else "one-way"


def _missing(facts: Mapping[str, Fact], *names: str) -> str:
    absent = [name.upper() for name in names if not facts[name]]
    return f"{' and '.join(absent)} is 0" if absent else ""


def _note(facts: Mapping[str, Fact]) -> str:
    return "" if facts["host_native_atomic_supported"] else ORDERED_ONLY


def _gpu_policy(facts: Mapping[str, Fact]) -> str:
    """Tegra documents pinned memory as uncached by the GPU; no document says it for other devices."""
    tegra = facts["integrated"] and not facts["pageable_memory_access"]
    return "UC" if tegra else "?"


def _pinned(facts: Mapping[str, Fact]) -> MemoryKind:
    return MemoryKind(
        "pinned", ("driver",), "WB", _gpu_policy(facts), coherence_of(facts), documented=True, inside=True,
        absent=_missing(facts, "can_map_host_memory"), note=_note(facts),
    )  # fmt: skip


def _write_combined(facts: Mapping[str, Fact]) -> MemoryKind:
    return MemoryKind(
        "pinned-wc", ("driver",), "WC", _gpu_policy(facts), coherence_of(facts), documented=True,
        inside=False, absent=_missing(facts, "can_map_host_memory"),
        note="CPU reads bypass its caches and are slow; for cpu->gpu only",
    )  # fmt: skip


def _registered(facts: Mapping[str, Fact]) -> MemoryKind:
    absent = _missing(facts, "can_map_host_memory", "host_register_supported")
    if facts["pageable_memory_access_uses_host_page_tables"]:
        absent = "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES is 1: 'system' needs no registration"
    return MemoryKind(
        "registered", OWN_PAGES, "WB", _gpu_policy(facts), coherence_of(facts), documented=True, inside=True,
        absent=absent, note=_note(facts),
    )  # fmt: skip


def _system(facts: Mapping[str, Fact]) -> MemoryKind:
    through = "" if facts["pageable_memory_access_uses_host_page_tables"] else "by page migration (HMM)"
    return MemoryKind(
        "system", OWN_PAGES, "WB", "?", coherence_of(facts), documented=True, inside=True,
        absent=_missing(facts, "pageable_memory_access", "concurrent_managed_access"), note=through,
    )  # fmt: skip


def _managed(facts: Mapping[str, Fact]) -> MemoryKind:
    absent = _missing(facts, "managed_memory", "concurrent_managed_access")
    if "CONCURRENT" in absent:
        absent += ": a CPU access would fault while any kernel runs"
    return MemoryKind(
        "managed", ("driver",), "WB", "WB", coherence_of(facts), documented=True, inside=True,
        absent=absent, note="by page migration" if not facts["integrated"] else "",
    )  # fmt: skip


def _host_vmm(facts: Mapping[str, Fact]) -> MemoryKind:
    return MemoryKind(
        "host-vmm", ("driver",), "WB", _gpu_policy(facts), coherence_of(facts), documented=True, inside=True,
        absent=_missing(facts, "host_numa_virtual_memory_management_supported"), note=_note(facts),
    )  # fmt: skip
