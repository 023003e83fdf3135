"""A cold file into fresh memory: time, peak resident memory and page cache, beside what people do today."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from umsh.backends.driver import Device
from umsh.microbench.definition import GIB, MIB, Benchmark, Parameters, Rig, Sample, real_only
from umsh.microbench.files import SEED, cached_bytes, drop_cache, pattern_file

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
DISK = "disk alone (one 16 MiB buffer)"  # no memory to make or to fill: what the disk itself allows
PIECE = 16 * MIB
MMAP_NUMPY, MMAP_4K = "mmap+copy (NumPy array)", "mmap+copy (4 KiB pages)"  # NumPy asks for huge pages
Check = Callable[[int], bool]


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    return [{"nbytes": 64 * MIB if quick else 1 * GIB}]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    return dict.fromkeys(WAYS, "")


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """Everything from mapping the memory to the last byte is timed; then every word is checked."""
    from umsh.native import lib

    nbytes = int(parameters["nbytes"])
    path = pattern_file(rig, nbytes)
    drop_cache(path)
    CLEAR.write_text("5")  # resets VmHWM, the peak, to the present resident size
    before = _status_bytes("VmRSS")
    start = rig.clock_ns()
    held: list[object] = []
    address, note = WAYS[subject](path, nbytes, held)
    ns = rig.clock_ns() - start
    values = {
        "load": float(ns),
        "peak": float(_status_bytes("VmHWM") - before),
        "page_cache": float(cached_bytes(path)),
    }
    if subject == DISK:
        return Sample(values, _last_piece_is_right(path, nbytes, address), note)
    wrong = lib.umsh_check(address, nbytes, SEED, lib.UMSH_READ_ALONE)
    return Sample(values, wrong == 0, note)


def _disk(path: Path, nbytes: int, held: list[object]) -> tuple[int, str]:
    """Every byte read directly, piece after piece, into the same memory."""
    from umsh.native import map_pages, read_file

    memory = map_pages(min(PIECE, nbytes), "thp")
    held.append(memory)
    fallback = ""
    with path.open("rb") as file:
        for offset in range(0, nbytes, PIECE):
            report = read_file(file.fileno(), offset, memory.address, min(PIECE, nbytes - offset))
            fallback = fallback or ("" if report.direct else report.fallback)
    return memory.address, f"read through the page cache: {fallback}" if fallback else ""


def _last_piece_is_right(path: Path, nbytes: int, address: int) -> bool:
    """The buffer holds the file's last piece; read_file has counted the bytes of the pieces before."""
    length = nbytes % PIECE or min(PIECE, nbytes)
    with path.open("rb") as file:
        file.seek(nbytes - length)
        return ctypes.string_at(address, length) == file.read(length)


def _region(path: Path, nbytes: int, held: list[object]) -> tuple[int, str]:
    from umsh.native import map_pages, read_file

    memory = map_pages(nbytes, "thp")
    held.append(memory)
    report = read_file(path, 0, memory.address, nbytes)
    return memory.address, "" if report.direct else f"read through the page cache: {report.fallback}"


def _mmap_and_copy(path: Path, nbytes: int, held: list[object]) -> tuple[int, str]:
    import numpy as np

    with path.open("rb") as file:
        array = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8).copy()
    held.append(array)
    return int(array.ctypes.data), ""


def _mmap_and_copy_4k(path: Path, nbytes: int, held: list[object]) -> tuple[int, str]:
    """The same copy into fresh memory without huge pages, as malloc gives it."""
    import numpy as np

    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    with path.open("rb") as file:
        array[:] = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    held.append(array)
    return int(array.ctypes.data), ""


def _fromfile(path: Path, nbytes: int, held: list[object]) -> tuple[int, str]:
    import numpy as np

    array = np.fromfile(path, np.uint8)
    held.append(array)
    return int(array.ctypes.data), ""


def _readinto(path: Path, nbytes: int, held: list[object]) -> tuple[int, str]:
    from umsh.native import map_pages

    memory = map_pages(nbytes, "thp")
    held.append(memory)
    view = (ctypes.c_char * nbytes).from_address(memory.address)
    with path.open("rb", buffering=0) as file:
        got = 0
        while got < nbytes and (count := file.readinto(memoryview(view)[got:])):
            got += count
    return memory.address, "" if got == nbytes else f"short read of {got} bytes"


def _status_bytes(key: str) -> int:
    for line in STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise LookupError(f"{STATUS} has no {key}")


WAYS = {
    "direct": _region,
    DISK: _disk,
    MMAP_NUMPY: _mmap_and_copy,
    MMAP_4K: _mmap_and_copy_4k,
    "np.fromfile": _fromfile,
    "readinto": _readinto,
}


def applies(device: Device) -> str:
    if missing := real_only(device):
        return missing
    return "" if os.access(CLEAR, os.W_OK) else f"{CLEAR} cannot be written, so no peak can be measured"


BENCHMARK = Benchmark(
    key="file_load",
    prose="Load a file that is not in the page cache into fresh memory: direct into large pages, mmap and "
    "copy into a new NumPy array (huge pages) or into 4 KiB pages, numpy.fromfile, readinto large pages; the "
    "disk alone into one reused buffer is the bound of all. Peak is resident memory above that before.",
    units={"load": "ns", "peak": "B", "page_cache": "B"},
    parameters=points,
    subjects=candidates,
    run=run,
    applies=applies,
    baselines=(MMAP_NUMPY, MMAP_4K),
)
