"""The header of a GGUF file, bounded; the format's tables come from the gguf package.

Format: ggml docs/gguf.md. The package's own reader follows a claimed array length without a bound, so it
cannot be given a file that nobody vouches for; the tests hold this one to its answers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from umsh.errors import UnsupportedError
from umsh.files.header import Entry, Header, bad, check_apart, elements, read_at
from umsh.files.kinds import GGUF, blocks

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER_BYTES_MAX = 128 << 20
PIECE_BYTES = 1 << 20  # of the header, read at a time
ALIGNMENT = 32  # unless the key general.alignment says otherwise
DEPTH_MAX = 4  # of arrays in arrays
# GGUFValueType -> struct code of one scalar (gguf.md, enum gguf_metadata_value_type).
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Cursor:
    """Little-endian values read one after the other from the start of a file; FileError at the bound."""

    def __init__(self, fd: int, path: str, file_bytes: int) -> None:
        self.path, self.at = path, 0
        self._fd, self._limit = fd, min(file_bytes, HEADER_BYTES_MAX)
        self._data = bytearray()

    @property
    def left(self) -> int:
        """Bytes that the header may still have."""
        return self._limit - self.at

    def take(self, nbytes: int) -> bytes:
        if nbytes > self.left:
            raise bad(self.path, f"its header runs past byte {self._limit}")
        end = self.at + nbytes
        if end > len(self._data):
            more = min(max(end, len(self._data) + PIECE_BYTES), self._limit) - len(self._data)
            self._data += read_at(self._fd, self.path, len(self._data), more)
        self.at = end
        return bytes(self._data[end - nbytes : end])

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        try:
            return str(self.take(self.scalar("Q")), "utf-8")
        except UnicodeDecodeError as error:
            raise bad(self.path, "a name or text in its header is not UTF-8") from error

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            return self.scalar(SCALARS[kind])
        if kind != ARRAY or depth == DEPTH_MAX:
            raise bad(self.path, f"its header has a value of the unknown type {kind}")
        kind, count = self.scalar("I"), self.scalar("Q")
        if code := SCALARS.get(kind):
            if count > self.left:
                raise bad(self.path, f"its header claims an array of {count} values")
            return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize("<" + code)))
        self._check_count(count)
        return tuple(self.value(kind, depth + 1) for _ in range(count))

    def _check_count(self, count: int) -> None:
        """Every item takes 8 bytes or more, so a larger count cannot be honest."""
        if count > self.left // 8:
            raise bad(self.path, f"its header claims {count} items in {self.left} bytes")

    def count(self) -> int:
        number: int = self.scalar("Q")
        self._check_count(number)
        return number


def read_header(fd: int, path: str, file_bytes: int) -> Header:
    """Names, kinds, shapes and ranges; FileError for anything the format forbids."""
    cursor = Cursor(fd, path, file_bytes)
    if cursor.take(4) != MAGIC:
        raise bad(path, "it does not begin with GGUF")
    version = cursor.scalar("I")
    if version not in VERSIONS:
        raise bad(path, f"its version is {version}", "Versions 2 and 3, little-endian, are read.")
    n_tensors, n_keys = cursor.count(), cursor.count()
    metadata = _metadata(cursor, n_keys)
    infos = [_info(cursor) for _ in range(n_tensors)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise bad(path, f"its alignment is {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    sizes = _sizes()
    entries = tuple(_entry(path, info, start, file_bytes, alignment, sizes) for info in infos)
    if len({entry.name for entry in entries}) != len(entries):
        raise bad(path, "its header names a tensor twice")
    check_apart(path, entries)
    return Header(path, "gguf", file_bytes, start, entries, metadata)


def _metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text()
        if key in found:
            raise bad(cursor.path, f"its header has the key {key!r} twice")
        found[key] = cursor.value(cursor.scalar("I"))
    return found


def _info(cursor: Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, dimensions (the fastest one first), GGML type and offset of one tensor."""
    name, n_dims = cursor.text(), cursor.scalar("I")
    if n_dims > 8:
        raise bad(cursor.path, f"tensor {name!r} has {n_dims} dimensions")
    dims = struct.unpack(f"<{n_dims}Q", cursor.take(8 * n_dims))
    return name, dims, cursor.scalar("I"), cursor.scalar("Q")


def _sizes() -> Mapping[int, tuple[str, int, int]]:
    """GGML type -> its name, elements a block, bytes a block."""
    try:
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError as error:
        raise UnsupportedError(
            "The package gguf is not installed; its tables say how large each GGML type is.",
            "Nothing was loaded.",
            "pip install 'umsh[files]'.",
        ) from error
    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def _entry(
    path: str,
    info: tuple[str, tuple[int, ...], int, int],
    start: int,
    file_bytes: int,
    alignment: int,
    sizes: Mapping[int, tuple[str, int, int]],
) -> Entry:
    name, dims, number, offset = info
    if number not in sizes:
        raise bad(path, f"tensor {name!r} has the unknown GGML type {number}", "Update the gguf package.")
    kind_name, block, block_bytes = sizes[number]
    shape = tuple(reversed(dims))
    count = elements(path, name, shape, file_bytes * block)
    row = shape[-1] if shape else 1
    if row % block:
        raise bad(path, f"tensor {name!r} has rows of {row}, not in blocks of {block}")
    nbytes = count // block * block_bytes
    if offset % alignment or offset > file_bytes or start + offset + nbytes > file_bytes:
        raise bad(path, f"tensor {name!r} has {nbytes} bytes from {start + offset} of {file_bytes}")
    kind = GGUF.get(kind_name)
    if kind is None:
        kind, shape = blocks(kind_name), (*shape[:-1], row // block * block_bytes)
    return Entry(name, kind, shape, start + offset, nbytes)
