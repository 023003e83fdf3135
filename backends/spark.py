"""Platform spark: DGX Spark (GB10); the GPU walks the CPU's page tables and both sides are coherent."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.machine import Fact, Platform

# Other integrated parts with host page tables exist (Thor); they cache system memory differently.
COMPUTE_CAPABILITY = (12, 1)


def _matches(facts: Mapping[str, Fact]) -> str:
    if facts.get("integrated") != 1 or not facts.get("pageable_memory_access_uses_host_page_tables"):
        return ""
    capability = (facts.get("compute_capability_major"), facts.get("compute_capability_minor"))
    if capability != COMPUTE_CAPABILITY:
        return ""
    return "INTEGRATED is 1, the GPU walks host page tables, compute capability 12.1"


PLATFORM = Platform(
    name="spark",
    driver="cuda",
    matches=_matches,
    safe_mechanisms=("system.thp:WA/RA", "pinned.driver:WA/RA", "copy.driver:copy/copy"),
    safe_memory=("pinned", "system"),
    safe_lock="peterson",
    safe_wait="block",
    source="CUDA C++ Programming Guide, unified memory: with host page tables system-allocated memory is "
    "hardware coherent; DGX Spark porting guide: use it or cudaHostAlloc, never cudaMalloc, for sharing",
    # While a kernel runs its plain loads may be served by the L1: only a fence makes them look again.
    safe_inside=("pinned.driver:WA/RI",),
    ships_choice=True,
)
