"""Platform orin: Jetson Orin; CPU caches pinned memory, the GPU does not, reads snoop CPU caches."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.machine import Fact, Platform


def _matches(facts: Mapping[str, Fact]) -> str:
    if facts.get("integrated") != 1 or facts.get("concurrent_managed_access") != 0:
        return ""
    return "INTEGRATED is 1 and CONCURRENT_MANAGED_ACCESS is 0"


PLATFORM = Platform(
    name="orin",
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
    source="CUDA for Tegra application note, table of memory types (compute capability >= 7.2): pinned "
    "memory is CPU cached, iGPU uncached and I/O coherent; managed memory needs driver maintenance",
    # While a kernel runs its plain loads may be served by the L1: only a fence makes them look again.
    safe_inside=("pinned.driver:WA/RI",),
    ships_choice=True,
)
