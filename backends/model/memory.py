"""Modelled memory: the bytes themselves and each agent's private copy of its lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umsh.backends.driver import Event, Memory, Stream
from umsh.mechanism import Backing, MemoryKind

LINE_NBYTES = 64
ALIGN_NBYTES = 128
Bytes = NDArray[np.uint8]

KINDS = (
    MemoryKind("coherent", ("driver",), "WB", "WB", "two-way", True, True),
    MemoryKind("cached", ("driver",), "WB", "WB", "none", False, False, note="private write-back caches"),
)


class Image:
    """One agent's cached lines of one memory. valid, dirty: bool [lines]; a dirty line is valid."""

    def __init__(self, home: Bytes) -> None:
        self.home = home
        self.bytes = np.zeros(len(home), np.uint8)
        self.view = self.bytes.data
        lines = -(-len(home) // LINE_NBYTES)
        self.valid = np.zeros(lines, np.bool_)
        self.dirty = np.zeros(lines, np.bool_)

    def fetch(self, line: int) -> None:
        """Make the line valid, from memory unless it already is."""
        if not self.valid[line]:
            span = _span(line)
            self.bytes[span] = self.home[span]
            self.valid[line] = True

    def fetch_all(self, lines: range) -> None:
        """fetch() of every line that is not valid."""
        for line in np.flatnonzero(~self.valid[lines.start : lines.stop]):
            self.fetch(lines.start + int(line))

    def write_back(self, line: int) -> None:
        """Put a dirty line into memory, all of it; it stays valid."""
        if self.dirty[line]:
            span = _span(line)
            self.home[span] = self.bytes[span]
            self.dirty[line] = False

    def drop(self, line: int) -> None:
        """Write back and invalidate: user space has no invalidation that throws a dirty line away."""
        self.write_back(line)
        self.valid[line] = False

    def clean(self) -> None:
        """Write back and invalidate everything."""
        for line in np.flatnonzero(self.dirty):
            self.write_back(int(line))
        self.valid[:] = False


class ModelMemory(Memory):
    """Zeroed memory of one of KINDS, or the caller's own bytes. `address` is a true address of its bytes."""

    def __init__(self, kind: MemoryKind, nbytes: int, home: Bytes | None = None) -> None:
        self.kind = kind
        self.nbytes = nbytes
        self.home = _aligned(nbytes) if home is None else home
        self.view = self.home.data
        self.address = self.device_address = int(self.home.ctypes.data)
        self.kernel_arg: Any = self
        self.backing = Backing("driver", 0, nbytes, 0, "driver")
        self.coherent = kind.coherence == "two-way"
        self.keep: object = None
        self.images = {"cpu": Image(self.home), "gpu": Image(self.home)}

    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        return None

    def free(self) -> None:
        """The bytes go with the last reference to them."""


def lines_of(offset: int, nbytes: int) -> range:
    """The lines that bytes [offset, offset + nbytes) touch."""
    return range(offset // LINE_NBYTES, -(-(offset + nbytes) // LINE_NBYTES))


def _span(line: int) -> slice:
    return slice(line * LINE_NBYTES, (line + 1) * LINE_NBYTES)


def _aligned(nbytes: int) -> Bytes:
    raw = np.zeros(nbytes + ALIGN_NBYTES, np.uint8)
    start = -int(raw.ctypes.data) % ALIGN_NBYTES
    return raw[start : start + nbytes]
