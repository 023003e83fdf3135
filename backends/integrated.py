"""Platform integrated: any other NVIDIA GPU that shares the CPU's memory (Thor); safe defaults only."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.backends import orin, spark
from umsh.machine import Fact, Platform


def _matches(facts: Mapping[str, Fact]) -> str:
    if facts.get("integrated") != 1 or orin.PLATFORM.matches(facts) or spark.PLATFORM.matches(facts):
        return ""
    return "INTEGRATED is 1 and neither Orin's nor Spark's attributes: safe defaults only"


PLATFORM = Platform(
    name="integrated",
    driver="cuda",
    matches=_matches,
    safe_mechanisms=(
        "pinned.driver:WA/RA",
        "registered.4k:WA/RA",
        "system.thp:WA/RA",
        "copy.driver:copy/copy",
    ),
    safe_memory=("pinned",),
    safe_lock="peterson",
    safe_wait="block",
    source="CUDA C++ Programming Guide: mapped page-locked memory is coherent at kernel boundaries",
    # While a kernel runs its plain loads may be served by the L1: only a fence makes them look again.
    safe_inside=("pinned.driver:WA/RI",),
)
