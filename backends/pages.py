"""CPU pages of every real driver: 4 KB, THP or hugetlb, private or shared through a memfd."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from cffi import FFI

from umsh.errors import OutOfMemory
from umsh.mechanism import Backing

FFI_PLAIN = FFI()
MADV_POPULATE_WRITE = 23


class Pages:
    """One mapping of ours; freed by free() or when dropped."""

    def __init__(self, nbytes: int, kind: str) -> None:
        try:
            self._map: Any = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise OutOfMemory(f"mmap of {nbytes} bytes failed: {error}.", "Nothing was left allocated.") from error
        if kind == "thp":
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._map.madvise(MADV_POPULATE_WRITE)
        self.address = int(FFI_PLAIN.cast("uintptr_t", FFI_PLAIN.from_buffer(self._map)))
        self.backing = Backing(kind, 0, nbytes, 0, "driver")

    def free(self) -> None:
        self._map = None


def view(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes at an address as an array that owns nothing."""
    return np.frombuffer(FFI_PLAIN.buffer(FFI_PLAIN.cast("char *", address), nbytes), dtype=np.uint8)
