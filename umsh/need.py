"""Need: what an application says about its data; never how it is met."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import index
from typing import Literal, get_args

from umsh.errors import NeedError

Direction = Literal["cpu->gpu", "gpu->cpu", "both"]
Source = Literal["cpu", "file", "network", "gpu"]
Boundary = Literal["kernel", "inside"]

DIRECTIONS: tuple[str, ...] = get_args(Direction)
SOURCES: tuple[str, ...] = get_args(Source)
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
NBYTES_MAX = 1 << 46  # beyond any machine described here; catches products that overflowed


@dataclass(frozen=True, slots=True)
class Need:
    """One need of an application (paper section 5: direction, I/O origin, kernel boundary).

    direction: who produces and who consumes; "both" alternates.
    source: where the data comes from ("cpu", "file", "network" or "gpu").
    boundary: "kernel" when hand-over happens between kernels, "inside" while one runs.
    nbytes: size in bytes, >= 1.
    passes: how often the receiver reads the data per hand-over, >= 1; from some number on a
        copy to device memory wins on discrete GPUs.
    Raises NeedError for values outside these ranges.
    """

    direction: str
    source: str
    boundary: str
    nbytes: int
    passes: int = 1

    def __post_init__(self) -> None:
        _one_of("direction", self.direction, DIRECTIONS)
        _one_of("source", self.source, SOURCES)
        _one_of("boundary", self.boundary, BOUNDARIES)
        if not 1 <= self.nbytes <= NBYTES_MAX:
            raise NeedError(
                f"A region of {self.nbytes} bytes was asked for.",
                f"A region holds 1 to {NBYTES_MAX} bytes; nothing was bound.",
                "Check the shape and dtype.",
            )
        if not _is_count(self.passes):
            raise NeedError(
                f"passes={self.passes!r} was given.", "Nothing was bound.", "Use a whole number from 1 up."
            )


def nbytes_of(shape: tuple[int, ...], itemsize: int) -> int:
    """Bytes of an array of `shape` with `itemsize`-byte elements; NeedError for a negative extent."""
    if any(extent < 0 for extent in shape):
        raise NeedError(f"Shape {shape} has a negative extent.", "Nothing was bound.", "Use extents >= 1.")
    return math.prod(shape) * itemsize


def _is_count(given: object) -> bool:
    try:
        return index(given) >= 1  # type: ignore[arg-type]
    except TypeError:
        return False


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise NeedError(
            f"{what}={value!r} is not known.",
            "Nothing was bound.",
            f"Use one of {', '.join(map(repr, allowed))}.",
        )
