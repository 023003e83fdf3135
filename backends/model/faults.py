"""Faults that can be planted in the modelled machine, each alone or together."""

from __future__ import annotations

from umsh.errors import DeviceError
from umsh.native import lib

FAULTS = {
    "stale": "an invalidation of the other agent's line is lost, so plain loads go on seeing the old value",
    "reorder": "stores leave the store buffer in any order; releases and fences do not hold them back",
    "torn": "a store of two halves reaches memory one half at a time",
    "lost_wakeup": "a released store (a set) now and then never arrives",
    "nonatomic": "a read-modify-write is a load and, later, a store",
    "flush_skips_line": "a write-back of several lines leaves one of them out",
    "coherence_lies": "memory said to be coherent is not: no access snoops the other agent's caches",
    "thp_splits": "memory bound with large pages is backed by 4 KiB pages while the kernel says otherwise",
}
BITS = {
    "stale": lib.UMSH_MODEL_STALE,
    "reorder": lib.UMSH_MODEL_REORDER,
    "torn": lib.UMSH_MODEL_TORN,
    "lost_wakeup": lib.UMSH_MODEL_LOST,
    "nonatomic": lib.UMSH_MODEL_NONATOMIC,
    "flush_skips_line": lib.UMSH_MODEL_SKIPS,
    "coherence_lies": lib.UMSH_MODEL_LIES,
    "thp_splits": 0,
}


def parse_faults(text: str) -> frozenset[str]:
    """The faults of "a,b"; DeviceError for one that is not known."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - set(FAULTS))
    if unknown:
        raise DeviceError(
            f"The model knows no fault or machine {', '.join(map(repr, unknown))}.",
            "No device was opened.",
            f"Use 'model:' for a clean one, or of {', '.join(FAULTS)}.",
        )
    return names


def bits(faults: frozenset[str]) -> int:
    """The faults as the jitted rules test them."""
    return sum(BITS[name] for name in faults)
