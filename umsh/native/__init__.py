"""C primitives below everything else: atomics, control words, cache lines, pages, file reads."""

from __future__ import annotations

from umsh.native._native import ffi, lib
from umsh.native.files import FileReport, file_resident, read_file
from umsh.native.pages import Mapping, attach_pages, map_pages

__all__ = [
    "FileReport",
    "Mapping",
    "attach_pages",
    "cpu_cache_facts",
    "ffi",
    "file_resident",
    "lib",
    "map_pages",
    "read_file",
]


def cpu_cache_facts() -> dict[str, int | bool | str]:
    """What this CPU's cache maintenance is: line size in bytes, features, the instruction of each method."""
    facts = ffi.new("umsh_cache_facts *")
    lib.umsh_cache_describe(facts)
    return {
        "line_bytes": facts.line_bytes,
        "has_clflush": bool(facts.has_clflush),
        "has_clflushopt": bool(facts.has_clflushopt),
        "has_clwb": bool(facts.has_clwb),
        "has_nontemporal": bool(facts.has_nontemporal),
        "writeback": _text(facts.writeback),
        "invalidate": _text(facts.invalidate),
        "bypass": _text(facts.bypass),
    }


def _text(pointer: object) -> str:
    return str(ffi.string(pointer), "ascii")
