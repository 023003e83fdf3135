"""What a weight file says it holds: names, kinds, shapes and byte ranges, checked before any is believed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umsh.errors import FileError
from umsh.files.kinds import BYTES, Kind

DIMENSIONS_MAX = 64  # NumPy's own bound


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its bytes are [offset, offset + nbytes) of the file."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header. data_start: where the file's data section begins. metadata: the file's own words."""

    path: str
    format: str
    file_bytes: int
    data_start: int
    entries: tuple[Entry, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)


def bad(path: str, what: str, next_step: str = "") -> FileError:
    """The one error of a header that cannot be right."""
    return FileError(
        f"{path!r} is not a valid file of its format: {what}.",
        "Nothing was loaded.",
        next_step or "The file is truncated, damaged or hostile: fetch it again from its source.",
    )


def read_at(fd: int, path: str, offset: int, nbytes: int) -> bytes:
    """Exactly [offset, offset + nbytes) of the file; FileError when it ends before."""
    parts = []
    while nbytes:
        part = os.pread(fd, min(nbytes, 1 << 30), offset)
        if not part:
            raise bad(path, f"it ends at byte {offset}, inside its header")
        parts.append(part)
        offset += len(part)
        nbytes -= len(part)
    return b"".join(parts)


def elements(path: str, name: str, shape: tuple[int, ...], limit: int) -> int:
    """Number of elements, at most `limit`; FileError for a shape that no file of this size can hold."""
    if len(shape) > DIMENSIONS_MAX:
        raise bad(path, f"tensor {name!r} has {len(shape)} dimensions")
    if any(extent < 0 for extent in shape):
        raise bad(path, f"tensor {name!r} has the shape {shape}")
    count = math.prod(shape)
    if count > limit:
        raise bad(path, f"tensor {name!r} of shape {shape} is larger than the file")
    return count


def check_apart(path: str, entries: tuple[Entry, ...]) -> None:
    """FileError when byte ranges of two tensors overlap: no writer makes such a file."""
    end, before = 0, ""
    for entry in sorted(entries, key=lambda e: (e.offset, e.nbytes)):
        if entry.nbytes and entry.offset < end:
            raise bad(path, f"tensors {before!r} and {entry.name!r} overlap")
        if entry.offset + entry.nbytes > end:
            end, before = entry.offset + entry.nbytes, entry.name


def raw_header(path: str, file_bytes: int) -> Header:
    """A file without a format: one tensor of bytes, named like the file."""
    entry = Entry(os.path.basename(path), BYTES, (file_bytes,), 0, file_bytes)
    return Header(path, "raw", file_bytes, 0, (entry,))
