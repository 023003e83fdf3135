"""Files for benchmarks: a pattern any agent can check, on disk and dropped from the page cache."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from umsh.microbench.definition import Rig

SEED = 7


def pattern_file(rig: Rig, nbytes: int) -> Path:
    """The file of this size with the pattern of SEED, written at the first request of a rig."""
    from umsh.native import ffi, lib, map_pages

    path = rig.folder / f"pattern-{nbytes}"
    if path.exists():
        return path
    with closing(map_pages(nbytes, "thp")) as memory, path.open("wb") as file:
        lib.umsh_fill(memory.address, nbytes, SEED, lib.UMSH_WRITE_ALONE)
        file.write(ffi.buffer(ffi.cast("char *", memory.address), nbytes))
        file.flush()
        os.fsync(file.fileno())
    return path


def drop_cache(path: Path) -> int:
    """Ask the kernel to forget the file's cached pages; returns the bytes that stayed. Needs no root."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_bytes(path)


def cached_bytes(path: Path) -> int:
    """Bytes of the file in the page cache now."""
    from umsh.native import file_resident

    with path.open("rb") as file:
        return file_resident(file.fileno(), 0, path.stat().st_size)
