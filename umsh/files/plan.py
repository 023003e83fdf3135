"""Where each tensor's bytes go: extents of a file, placed in regions so that direct reads need no copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from umsh.files.header import Entry

PAGE_BYTES = 4096  # direct reads are aligned to this or less on every file system met
GAP_BYTES_MAX = 64 << 10  # between chosen tensors; more is not read along
REGION_BYTES_MAX = 128 << 20  # unless one tensor is larger; one is bound while another is read
ALIGN_BYTES = 64  # of tensors that cannot lie as in the file


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes [offset, offset + nbytes) of a file that lie together in a region.

    at: where they go, counted from a page boundary inside the region. Where at - offset is a multiple
    of a page the disk writes to the region itself; elsewhere through a small bounce buffer.
    """

    offset: int
    nbytes: int
    at: int
    entries: tuple[Entry, ...]

    def place(self, entry: Entry) -> int:
        """Where a tensor begins, counted like `at`."""
        return self.at + entry.offset - self.offset


@dataclass(frozen=True, slots=True)
class Part:
    """What one region holds. nbytes: of the region, with room to find a page boundary in it."""

    extents: tuple[Extent, ...]
    nbytes: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for extent in self.extents for entry in extent.entries)


def plan(entries: Iterable[Entry], data_start: int, region_bytes: int = REGION_BYTES_MAX) -> list[Part]:
    """Parts for the entries that have bytes, in file order; of region_bytes unless one tensor is larger."""
    parts: list[Part] = []
    extents: list[Extent] = []
    end = 0
    for run in _runs(entries, data_start, region_bytes):
        first, shift = run[0], _shift(run[0], data_start)
        nbytes = run[-1].offset + run[-1].nbytes - first.offset
        if extents and end + nbytes > region_bytes:
            parts.append(Part(tuple(extents), end + PAGE_BYTES))
            extents, end = [], 0
        at = end + (first.offset + shift - end) % PAGE_BYTES
        extents.append(Extent(first.offset, nbytes, at, tuple(run)))
        end = at + nbytes
    if extents:
        parts.append(Part(tuple(extents), end + PAGE_BYTES))
    return parts


def nbytes_of(parts: Iterable[Part]) -> int:
    """Bytes that the regions of these parts take."""
    return sum(part.nbytes for part in parts)


def _runs(entries: Iterable[Entry], data_start: int, region_bytes: int) -> Iterator[list[Entry]]:
    """Neighbours in the file that are moved alike, at most region_bytes together."""
    run: list[Entry] = []
    for entry in sorted((e for e in entries if e.nbytes), key=lambda e: e.offset):
        if run:
            last = run[-1]
            gap = entry.offset - last.offset - last.nbytes
            long = entry.offset + entry.nbytes - run[0].offset > region_bytes
            if gap > GAP_BYTES_MAX or long or _shift(entry, data_start) != _shift(last, data_start):
                yield run
                run = []
        run.append(entry)
    if run:
        yield run


def _shift(entry: Entry, data_start: int) -> int:
    """Bytes a tensor is moved, against its place in the file's pages, to be aligned for its kind."""
    align = entry.kind.align
    for shift in (0, -data_start % ALIGN_BYTES):
        if (entry.offset + shift) % align == 0:
            return shift
    return -entry.offset % ALIGN_BYTES
