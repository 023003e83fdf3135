"""Candidates of a device: every mechanism it could meet a need with, absent ones with the missing fact."""

from __future__ import annotations

from collections.abc import Iterator

from umsh.backends.driver import Agent, Device
from umsh.mechanism import READ_METHODS, WRITE_METHODS, Mechanism, MemoryKind

# The smallest large page of x86-64, and of aarch64 with 4 KiB pages.
LARGE_PAGE_BYTES = 2 << 20


def mechanisms(device: Device, direction: str, nbytes: int = 0) -> dict[str, str]:
    """Mechanism name -> "" or the missing fact, in the driver's order; direction "cpu->gpu" or "gpu->cpu".

    nbytes: also the page kinds that regions of this size cannot have are absent; 0 for any size.
    """
    writer, reader = (device.cpu, device.gpu) if direction == "cpu->gpu" else (device.gpu, device.cpu)
    found: dict[str, str] = {}
    for kind, pages in memories(device):
        for write, read, missing in _methods(kind, writer, reader):
            small = page_size_missing(pages, nbytes) if nbytes else ""
            found[Mechanism(kind.name, pages, write, read).name] = kind.absent or missing or small
    return found


def memories(device: Device) -> Iterator[tuple[MemoryKind, str]]:
    """Every memory kind with every page kind it declares."""
    for kind in device.memory_kinds():
        for pages in kind.pages:
            yield kind, pages


def page_kinds(device: Device, nbytes: int) -> dict[str, str]:
    """Each memory.pages with its missing fact for regions of nbytes, the empty string where it can be had."""
    return {
        f"{kind.name}.{pages}": kind.absent or page_size_missing(pages, nbytes)
        for kind, pages in memories(device)
    }


def page_size_missing(pages: str, nbytes: int) -> str:
    """Why regions of nbytes cannot have this page kind, or the empty string."""
    if pages in ("thp", "hugetlb") and nbytes < LARGE_PAGE_BYTES:
        return f"regions below {LARGE_PAGE_BYTES >> 20} MiB have no large page to use"
    return ""


def _methods(kind: MemoryKind, writer: Agent, reader: Agent) -> Iterator[tuple[str, str, str]]:
    """(write, read, missing fact) of each pair of methods; the copy baseline has one pair only."""
    if kind.name == "copy":
        yield "copy", "copy", ""
        return
    writes, reads = writer.methods(), reader.methods()
    for write in WRITE_METHODS:
        for read in READ_METHODS:
            if "copy" not in (write, read):
                missing = writes.get(write, f"the {writer.kind} has no {write}")
                yield write, read, missing or reads.get(read, f"the {reader.kind} has no {read}")


def control_memories(device: Device) -> Iterator[tuple[MemoryKind, str]]:
    """Every kind that one memory serves both agents with, and why it cannot hold flags and locks, or ""."""
    for kind in device.memory_kinds():
        if kind.name != "copy":
            yield kind, kind.absent
