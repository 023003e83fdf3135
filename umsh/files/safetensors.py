"""The header of a safetensors file, by the rules of the safetensors package's own reader.

Format: README of safetensors, "Format"; rules: its tensor.rs `Metadata::validate`. The package reads
headers only through a memory map of the whole file and gives no offsets, so the few lines are here;
the tests hold them to the package's verdict on every file they make.
"""

from __future__ import annotations

import json
from typing import Any

from umsh.files.header import Entry, Header, bad, check_apart, elements, read_at
from umsh.files.kinds import SAFETENSORS

LENGTH_BYTES = 8
HEADER_BYTES_MAX = 100_000_000  # tensor.rs MAX_HEADER_SIZE
METADATA = "__metadata__"


def read_header(fd: int, path: str, file_bytes: int) -> Header:
    """Names, kinds, shapes and ranges; FileError for anything the format forbids."""
    if file_bytes < LENGTH_BYTES:
        raise bad(path, f"it has {file_bytes} bytes, fewer than the length of a header takes")
    length = int.from_bytes(read_at(fd, path, 0, LENGTH_BYTES), "little")
    if length > HEADER_BYTES_MAX or length > file_bytes - LENGTH_BYTES:
        raise bad(path, f"its header claims {length} bytes; the file has {file_bytes}")
    said = _parse(path, read_at(fd, path, LENGTH_BYTES, length))
    metadata = said.pop(METADATA, None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise bad(path, f"{METADATA} is not a map of text to text")
    start = LENGTH_BYTES + length
    entries = tuple(_entry(path, name, info, start, file_bytes) for name, info in said.items())
    _check_whole(path, entries, start, file_bytes)
    return Header(path, "safetensors", file_bytes, start, entries, metadata)


def _parse(path: str, text: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise bad(path, f"its header names {twice!r} twice")
        return found

    if not text.startswith(b"{"):
        raise bad(path, "its header is not a JSON object")
    try:
        said = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:  # JSON, UTF-8, numbers too long, nesting too deep
        raise bad(path, f"its header is not JSON ({type(error).__name__})") from error
    if not isinstance(said, dict):
        raise bad(path, "its header is not a JSON object")
    return said


def _entry(path: str, name: str, info: Any, start: int, file_bytes: int) -> Entry:
    try:
        dtype, shape, (first, last) = info["dtype"], tuple(info["shape"]), info["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise bad(path, f"tensor {name!r} lacks a dtype, a shape or two data_offsets") from error
    if not all(type(n) is int and n >= 0 for n in (*shape, first, last)):
        raise bad(path, f"tensor {name!r} has a shape or offsets that are no whole numbers from 0 on")
    kind = SAFETENSORS.get(dtype) if isinstance(dtype, str) else None
    if kind is None:
        known = f"Known: {', '.join(SAFETENSORS)}."
        raise bad(path, f"tensor {name!r} has the unknown dtype {dtype!r}", known)
    if first > last or last > file_bytes - start:
        raise bad(path, f"tensor {name!r} has bytes {first} to {last} of {file_bytes - start}")
    count = elements(path, name, shape, file_bytes)
    if count * kind.storage.itemsize != last - first:
        raise bad(path, f"tensor {name!r} of shape {shape} and {dtype} is given {last - first} bytes")
    return Entry(name, kind, shape, start + first, last - first)


def _check_whole(path: str, entries: tuple[Entry, ...], start: int, file_bytes: int) -> None:
    """The tensors cover the data section: no overlap, no hole, nothing after the last one."""
    check_apart(path, entries)
    covered = start + sum(entry.nbytes for entry in entries)
    if covered != file_bytes:
        raise bad(path, f"its tensors cover {covered} of {file_bytes} bytes")
