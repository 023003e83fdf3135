"""Modelled memory: the bytes themselves and each agent's cached copy of their lines."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umsh.backends.driver import Event, Memory, Stream
from umsh.backends.model.description import MemoryText, memory_kind
from umsh.mechanism import Backing
from umsh.native import ffi

ALIGN_NBYTES, LINE_NBYTES = 128, 64
EXACT_NBYTES = 1 << 20  # larger blocks are followed at one line in 64 KiB; their time counts every byte
SAMPLED_LINES = (64 << 10) // LINE_NBYTES
Bytes = NDArray[np.uint8]


class ModelMemory(Memory):
    """Zeroed memory of a described kind, or the caller's own bytes. `address` is a true address of its bytes.

    images: uint8 [agent][byte], whole lines; marks: uint8 [agent][line]; native: all of it, for C.
    """

    def __init__(self, text: MemoryText, pages: str, nbytes: int, home: Bytes | None = None,
                 split: bool = False, freed: Callable[[int], None] | None = None) -> None:  # fmt: skip
        self.kind = memory_kind(text)
        self.text = text
        self.pages = "4k" if split else pages
        self.nbytes = nbytes
        self.home = _aligned(nbytes) if home is None else home
        self.address = self.device_address = int(self.home.ctypes.data)
        self.kernel_arg: Any = self
        huge = nbytes >> 21 << 21 if pages in ("thp", "hugetlb") else 0
        self.backing = Backing(pages, huge, nbytes, 2 << 20 if huge else 0, "model")
        self.keep: object = None
        lines = -(-nbytes // LINE_NBYTES)
        self.images = np.zeros((2, lines * LINE_NBYTES), np.uint8)
        self.marks = np.zeros((2, lines), np.uint8)
        self.native = ffi.new("umsh_model_memory *", {
            "home": _pointer(self.home), "images": [_pointer(one) for one in self.images],
            "marks": [_pointer(one) for one in self.marks], "nbytes": nbytes,
            "cached": [policy == "WB" for policy in (text.cpu, text.gpu)],
            "coherent": {"none": (0, 0), "one-way": (0, 1), "two-way": (1, 1)}[text.coherence],
        })  # fmt: skip
        self.freed = weakref.finalize(self, freed, nbytes) if freed else None

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def free(self) -> None:
        """The bytes go with the last reference to them; the budget gets them back now."""
        if self.freed is not None:
            self.freed()


def every(nbytes: int) -> int:
    """One line in how many of a block is followed."""
    return 1 if nbytes <= EXACT_NBYTES else SAMPLED_LINES


def _pointer(array: Bytes) -> Any:
    return ffi.cast("uint8_t *", array.ctypes.data)


def _aligned(nbytes: int) -> Bytes:
    raw = np.zeros(nbytes + ALIGN_NBYTES, np.uint8)
    start = -int(raw.ctypes.data) % ALIGN_NBYTES
    return raw[start : start + nbytes]
