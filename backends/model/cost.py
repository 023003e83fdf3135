"""What events of the modelled machine cost, in ns of virtual time, and the seeded pattern.

Placeholders that give a plausible order of sizes; a described machine brings its own, with sources.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from umsh.native import ffi, lib

COST_NS = {"load": 20, "store": 5, "fence": 40, "modify": 60, "pause": 80, "turn": 4, "launch": 2000}
BLOCK_BYTES_PER_NS = 10
POLL_NS, IDLE_NS, POLLS_BUSY = 25, 20_000, 512


def block_ns(nbytes: int) -> int:
    """Moving `nbytes` in one run of accesses."""
    return COST_NS["load"] + nbytes // BLOCK_BYTES_PER_NS


def poll_ns(number: int) -> int:
    """The poll of that number in one wait: first often, then seldom, so that a vain wait costs few events."""
    return POLL_NS if number < POLLS_BUSY else IDLE_NS


@lru_cache(maxsize=64)
def pattern(seed: int, nbytes: int) -> bytes:
    """The first `nbytes` of the seeded pattern of umsh/device/steps.h."""
    words = np.empty(nbytes, np.uint8)
    lib.umsh_fill(int(ffi.cast("uintptr_t", ffi.from_buffer(words))), nbytes, seed & 0xFFFFFFFF, 0)
    return words.tobytes()
