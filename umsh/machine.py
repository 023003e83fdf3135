"""Facts asked of this machine, and which platform they say it is; never a marketing name."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

Fact = str | int | float | bool

THP = Path("/sys/kernel/mm/transparent_hugepage")


@dataclass(frozen=True, slots=True)
class Platform:
    """One kind of machine and what is safe on it before any probe has run.

    name: "host", "orin" and so on. driver: the API it is reached through.
    matches: facts -> the evidence that this machine is one, or "" when it is not.
    safe_mechanisms: vendor-guaranteed coherent mechanisms, the preferred first; the first one
        whose memory kind this device has is the default of every need.
    safe_memory: memory kind of flags and locks, the preferred first.
    safe_lock / safe_wait: lock algorithm and throttle level that are right everywhere.
    source: where the guarantee is written (spec clause, vendor document).
    """

    name: str
    driver: str
    matches: Callable[[Mapping[str, Fact]], str]
    safe_mechanisms: tuple[str, ...]
    safe_memory: tuple[str, ...]
    safe_lock: str
    safe_wait: str
    source: str


def recognise(
    candidates: Iterable[Platform], driver: str, facts: Mapping[str, Fact]
) -> tuple[Platform, str] | None:
    """The platform whose asked facts match, with the evidence; None when none does."""
    for candidate in candidates:
        if candidate.driver == driver and (evidence := candidate.matches(facts)):
            return candidate, evidence
    return None


def machine_facts() -> dict[str, Fact]:
    """What the operating system says about this machine: processor, kernel, pages, memory."""
    facts: dict[str, Fact] = {
        "arch": platform.machine(),
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    for name in ("enabled", "defrag", "shmem_enabled"):
        facts[f"thp_{name}"] = _selected(THP / name)
    facts["thp_bytes"] = _number(THP / "hpage_pmd_size")
    facts["hugetlb_pages"] = _number(Path("/proc/sys/vm/nr_hugepages"))
    return facts


def _cpu_name() -> str:
    """The processor's own name: for a reader of a report, never to decide anything."""
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "CPU part"):
            return value.strip()
    return "unknown"


def _selected(path: Path) -> str:
    """The bracketed word of a sysfs choice such as "always [madvise] never"; "" when absent."""
    return _text(path).partition("[")[2].partition("]")[0]


def _number(path: Path) -> int:
    """The number a kernel file holds; 0 where this kernel has no such file."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    """The text of a kernel file; "" where this kernel has no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
