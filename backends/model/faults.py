"""Faults that can be planted in the modelled machine, each alone or together."""

from __future__ import annotations

from umsh.errors import DeviceError

FAULTS = {
    "stale": "an invalidation of the other agent's line is lost, so plain loads go on seeing the old value",
    "reorder": "stores leave the store buffer in any order; releases and fences do not hold them back",
    "torn": "a store of two halves reaches memory one half at a time",
    "lost_wakeup": "a released store (a set) now and then never arrives",
    "nonatomic": "a read-modify-write is a load and, later, a store",
    "flush_skips_line": "a write-back of several lines leaves one of them out",
}


def parse_faults(text: str) -> frozenset[str]:
    """The faults of "a,b"; DeviceError for one that is not known."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(names - set(FAULTS))
    if unknown:
        raise DeviceError(
            f"The model knows no fault {', '.join(map(repr, unknown))}.",
            "No device was opened.",
            f"Use 'model:' for a clean one, or of {', '.join(FAULTS)}.",
        )
    return names
