"""Platform discrete: an NVIDIA GPU with memory of its own; CPU memory is reached over PCIe or C2C."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.machine import Fact, Platform


def _matches(facts: Mapping[str, Fact]) -> str:
    if facts.get("integrated") != 0:
        return ""
    if facts.get("pageable_memory_access_uses_host_page_tables"):
        return "INTEGRATED is 0 and the GPU walks host page tables (Grace-class link): safe defaults only"
    return "INTEGRATED is 0"


PLATFORM = Platform(
    name="discrete",
    driver="cuda",
    matches=_matches,
    safe_mechanisms=(
        "pinned.driver:WA/RA",
        "registered.4k:WA/RA",
        "copy.driver:copy/copy",
    ),
    safe_memory=("pinned",),
    safe_lock="peterson",
    safe_wait="block",
    source="CUDA C++ Programming Guide: mapped page-locked memory is coherent at kernel boundaries, its "
    "aligned loads and stores are single; its read-modify-write atomics are not atomic for the host",
    # While a kernel runs its plain loads may be served by the L1: only a fence makes them look again.
    safe_inside=("pinned.driver:WA/RI",),
)
