"""Facts asked of this machine, and which platform they say it is; never a marketing name."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from umsh.errors import DeviceError, OutOfMemory

Fact = str | int | float | bool

THP = Path("/sys/kernel/mm/transparent_hugepage")
VIRTIO = Path("/sys/bus/virtio/devices")
BALLOON_ID, BALLOON_REPORTING_BIT = 5, 5  # Virtual I/O Device (VIRTIO) 1.2, sections 5.5.1 and 5.5.3
DRM = Path("/sys/class/drm")
CGROUPS = Path("/sys/fs/cgroup")
RESERVE_BYTES = 256 << 20  # left to the system by every allocation; 1/64 of a smaller machine
RESERVE_PART = 64


@dataclass(frozen=True, slots=True)
class Platform:
    """One kind of machine and what is safe on it before any probe has run.

    name: "host", "orin" and so on. driver: the API it is reached through.
    matches: facts -> the evidence that this machine is one, or "" when it is not.
    safe_mechanisms: vendor-guaranteed coherent mechanisms, the preferred first; the first one
        whose memory kind this device has is the default of every need.
    safe_inside: the same for boundary "inside" where it differs; empty: safe_mechanisms.
    safe_memory: memory kind of flags and locks, the preferred first.
    safe_lock / safe_wait: lock algorithm and throttle level that are right everywhere.
    source: where the guarantee is written (spec clause, vendor document).
    ships_choice: nobody of us has measured one; the safe rows are shipped as a choice of their own.
    """

    name: str
    driver: str
    matches: Callable[[Mapping[str, Fact]], str]
    safe_mechanisms: tuple[str, ...]
    safe_memory: tuple[str, ...]
    safe_lock: str
    safe_wait: str
    source: str
    safe_inside: tuple[str, ...] = ()
    ships_choice: bool = False


def recognise(
    candidates: Iterable[Platform], driver: str, facts: Mapping[str, Fact]
) -> tuple[Platform, str] | None:
    """The platform whose asked facts match, with the evidence; None when none does, or more than one."""
    found = [
        (candidate, evidence)
        for candidate in candidates
        if candidate.driver == driver and (evidence := candidate.matches(facts))
    ]
    return found[0] if len(found) == 1 else None


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
    facts["drm"] = _graphics(DRM)
    facts["thp_bytes"] = _number(THP / "hpage_pmd_size")
    facts["free_page_reporting"] = _free_page_reporting(VIRTIO)
    facts["hugetlb_pages"] = _number(Path("/proc/sys/vm/nr_hugepages"))
    return facts


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Bytes that new regions can take, of how many, and where the figure comes from."""

    usable_bytes: int
    total_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """One control group's memory: its limit, what is in use and how much of that is page cache."""

    limit_bytes: int
    used_bytes: int
    cache_bytes: int
    source: str


def usable_memory(
    unified: bool, device: tuple[int, int] | None, meminfo: str, groups: Sequence[GroupLimit] = ()
) -> MemoryInfo:
    """What new regions can take; pure, so that every machine's case can be tested.

    unified: the device uses the CPU's memory (asked of the driver, never judged from sizes).
    device: (free, total) bytes by the driver; used for a discrete device, and only for one.
    meminfo: text of /proc/meminfo. groups: every limit that applies to this process.
    On a unified device the driver's free figure counts page cache as used, so reclaimable memory
    (MemAvailable) is followed instead, cut by the tightest group. DeviceError when a figure is missing.
    """
    if not unified:
        if device is None:
            raise DeviceError(
                "The driver of this discrete device told no memory figure.", "Usable memory is unknown.", ""
            )
        return MemoryInfo(max(0, min(device)), device[1], "device driver")
    figures = _meminfo(meminfo)
    total = figures.get("MemTotal", 0)
    if total <= 0:
        raise DeviceError(
            "/proc/meminfo has no MemTotal.", "Usable memory is unknown.", "Check that /proc is mounted."
        )
    if "MemAvailable" in figures:
        usable, source = figures["MemAvailable"], "MemAvailable"
    else:  # Linux before 3.14: an estimate from the parts that can be reclaimed
        parts = ("MemFree", "Buffers", "Cached")
        usable = sum(figures.get(part, 0) for part in parts) - figures.get("Shmem", 0)
        source = "MemFree + Buffers + Cached - Shmem"
    best = MemoryInfo(max(0, min(usable, total)), total, source)
    for group in groups:
        left = max(0, group.limit_bytes - max(0, group.used_bytes - group.cache_bytes))
        if group.limit_bytes < best.total_bytes or left < best.usable_bytes:
            best = MemoryInfo(
                min(left, best.usable_bytes),
                min(group.limit_bytes, best.total_bytes),
                group.source if left < best.usable_bytes else best.source,
            )
    return best


def check_room(nbytes: int, info: MemoryInfo) -> None:
    """Raise OutOfMemory before the machine is starved: `nbytes` and a reserve must fit what is usable."""
    reserve = min(RESERVE_BYTES, info.total_bytes // RESERVE_PART)
    if nbytes > info.usable_bytes - reserve:
        raise OutOfMemory(
            f"{nbytes} bytes were asked for; {info.usable_bytes} of {info.total_bytes} are usable "
            f"({info.source}) and {reserve} are left to the system.",
            "Nothing was allocated.",
            "Unbind regions, use a smaller one, or raise the limit that the source names.",
        )


def read_meminfo() -> str:
    """The text of /proc/meminfo."""
    return Path("/proc/meminfo").read_text(encoding="ascii")


def group_limits(own: str | None = None, root: Path = CGROUPS) -> tuple[GroupLimit, ...]:
    """Memory limits of this process's control groups and their ancestors, versions 1 and 2.

    own: text of /proc/self/cgroup. root: where the hierarchies are mounted. Inside a container the
    own path may not be visible; the root of the mount is then the container's own group.
    """
    text = _text(Path("/proc/self/cgroup")) if own is None else own
    found: list[GroupLimit] = []
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            bases = (root, root / "unified")
            names = ("memory.max", "memory.current", "", "cgroup v2")
        elif "memory" in controllers.split(","):
            bases = (root / "memory", root)
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_", "cgroup v1")
        else:
            continue
        for base in bases:
            inner = Path(path.lstrip("/"))
            for folder in (base / inner, *(base / parent for parent in inner.parents)):
                found.extend(_group(folder, *names))
    return tuple(dict.fromkeys(found))


def _group(folder: Path, limit: str, used: str, prefix: str, version: str) -> list[GroupLimit]:
    """The limit of one group folder; empty where it sets none ("max", or the v1 number for none)."""
    bytes_max = _number(folder / limit)
    if not 0 < bytes_max < 1 << 60:
        return []
    stat = dict(line.split()[:2] for line in _text(folder / "memory.stat").splitlines() if " " in line)
    cache = sum(int(stat.get(f"{prefix}{part}_file", 0)) for part in ("active", "inactive"))
    return [GroupLimit(bytes_max, _number(folder / used), cache, f"{version} {limit} of {folder}")]


def _meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo as bytes; lines that hold no number are left out."""
    figures: dict[str, int] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            figures[key.strip()] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return figures


def _cpu_name() -> str:
    """The processor's own name: for a reader of a report, never to decide anything."""
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "CPU part"):
            return value.strip()
    return "unknown"


def _graphics(folder: Path) -> str:
    """ "driver:vendor:device" of each graphics device, "" where the kernel shows none."""
    devices = [
        card / "device" for card in sorted(folder.glob("card*")) if (card / "device" / "driver").exists()
    ]
    asked = [
        (d / "driver").resolve().name + "".join(f":{_text(d / w).strip()}" for w in ("vendor", "device"))
        for d in devices
    ]
    return " ".join(dict.fromkeys(one for one in asked if one.count("0x") == 2))


def _free_page_reporting(devices: Path) -> bool:
    """A virtual machine's host takes free memory back; who allocates after that waits for the host."""
    return any(
        _text(device / "features")[BALLOON_REPORTING_BIT : BALLOON_REPORTING_BIT + 1] == "1"
        for device in devices.glob("*")
        if _text(device / "device").strip() == f"{BALLOON_ID:#06x}"
    )


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
