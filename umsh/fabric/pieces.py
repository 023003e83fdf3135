"""Merge adjacent pieces of a scattered copy and refuse destinations that overlap, vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from umsh.errors import NeedError

Int64s = npt.NDArray[np.int64]


class Pieces(NamedTuple):
    """A scattered copy: int64 arrays of equal length; address, address, bytes."""

    dsts: Int64s
    srcs: Int64s
    sizes: Int64s

    @property
    def nbytes(self) -> int:
        return int(self.sizes.sum())


def single(dst: int, src: int, nbytes: int) -> Pieces:
    """One piece, or none for no bytes."""
    kept = 1 if nbytes else 0
    dsts, srcs, sizes = (np.array([value], np.int64)[:kept] for value in (dst, src, nbytes))
    return Pieces(dsts, srcs, sizes)


def plan(dsts: Sequence[int] | Int64s, srcs: Sequence[int] | Int64s, sizes: Sequence[int] | Int64s) -> Pieces:
    """The fewest pieces that do the same copy, in ascending destination order; empty pieces are dropped.

    Pieces merge when both their destinations and their sources adjoin. The order between pieces of one call
    is free, as in `cuMemcpyBatchAsync`, so they are sorted first: reversed input merges as well.

    Raises `NeedError` for lengths that differ, negative sizes, and destinations that overlap (the bytes that
    would win are then undefined).
    """
    dst, src, size = (np.array(column, dtype=np.int64).reshape(-1) for column in (dsts, srcs, sizes))
    if not len(dst) == len(src) == len(size):
        raise NeedError(
            f"{len(dst)} destinations, {len(src)} sources and {len(size)} sizes do not match.",
            "Nothing was copied.",
            "Give one destination, one source and one size a piece.",
        )
    if len(size) and int(size.min()) < 0:
        raise NeedError("A piece has a negative size.", "Nothing was copied.", "Sizes are bytes, 0 or more.")
    if len(size) == 0 or int(size.min()) == 0:
        kept = size > 0
        dst, src, size = dst[kept], src[kept], size[kept]
    if len(size) < 2:
        return Pieces(dst, src, size)
    if (dst[1:] < dst[:-1]).any():
        order = np.argsort(dst)
        dst, src, size = dst[order], src[order], size[order]
    _refuse_overlap(dst, size)
    joins = (dst[:-1] + size[:-1] == dst[1:]) & (src[:-1] + size[:-1] == src[1:])
    starts = np.flatnonzero(np.concatenate(([True], ~joins)))
    return Pieces(dst[starts], src[starts], np.add.reduceat(size, starts))


def _refuse_overlap(dst: Int64s, size: Int64s) -> None:
    clash = np.flatnonzero(dst[:-1] + size[:-1] > dst[1:])
    if len(clash):
        at = int(clash[0])
        raise NeedError(
            f"Destinations {int(dst[at]):#x} (+{int(size[at])} bytes) and {int(dst[at + 1]):#x} overlap.",
            "Nothing was copied: which piece wins would be undefined.",
            "Remove duplicate pieces, or copy them in separate calls on one stream.",
        )
