"""The page step of bind alone: map and prefault natively, without Python's part and without verification."""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Mapping, Sequence

from umsh.backends.driver import Device
from umsh.microbench.definition import GIB, KIB, MIB, Benchmark, Parameters, Rig, Sample, real_only
from umsh.microbench.subjects import page_size_missing

SIZES = (4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 128 * MIB, 1 * GIB)
SIZES_QUICK = (4 * KIB, 32 * KIB, 16 * MIB)
MEMSET, POPULATE = "4k-memset", "4k-populate"
MADV_POPULATE_WRITE = 23  # Linux 5.14, <asm-generic/mman-common.h>; Python's mmap does not name it


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    return [{"nbytes": n} for n in (SIZES_QUICK if quick else SIZES)]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    nbytes = int(parameters["nbytes"])
    # Below one large page thp is plain pages, and timed as such.
    found = {MEMSET: "", POPULATE: _no_populate(), "4k": "", "thp": ""}
    found["hugetlb"] = page_size_missing("hugetlb", nbytes) or _no_hugetlb(nbytes)
    return found


def _no_populate() -> str:
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(MADV_POPULATE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return "this kernel has no MADV_POPULATE_WRITE; Linux 5.14 brought it"
    finally:
        memory.close()
    return ""


def _no_hugetlb(nbytes: int) -> str:
    from umsh.errors import UnsupportedError
    from umsh.native import map_pages

    try:
        map_pages(nbytes, "hugetlb").close()
    except UnsupportedError as error:
        return error.consequence
    return ""


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """Map, make every page present, look at the first and last word (new memory is zero), unmap.

    The first of two such runs is not counted. A virtual machine's host may take free memory back within
    seconds (free page reporting); whoever allocates next waits for the host, which is no page step.
    """
    step = _populate if subject == POPULATE else _map
    step(rig, subject, int(parameters["nbytes"]))
    return step(rig, subject, int(parameters["nbytes"]))


def _map(rig: Rig, subject: str, nbytes: int) -> Sample:
    from umsh.native import ffi, lib

    kinds = {"thp": lib.UMSH_PAGES_THP, "hugetlb": lib.UMSH_PAGES_HUGETLB}
    kind = kinds.get(subject, lib.UMSH_PAGES_4K)
    mapping = ffi.new("umsh_mapping *")
    start = rig.clock_ns()
    result = lib.umsh_pages_map(nbytes, kind, subject != MEMSET, mapping)
    if subject == MEMSET and result == 0:
        ctypes.memset(mapping.address, 0, nbytes)
    ns = rig.clock_ns() - start
    ends = (mapping.address, mapping.address + nbytes - 4)
    zero = result == 0 and not any(lib.umsh_load_acquire(end) for end in ends)
    lib.umsh_pages_unmap(mapping)
    return Sample({"map": float(ns)}, zero)


def _populate(rig: Rig, subject: str, nbytes: int) -> Sample:
    """What people do: one mmap and one MADV_POPULATE_WRITE by one thread, without huge pages."""
    start = rig.clock_ns()
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory.madvise(MADV_POPULATE_WRITE)
    ns = rig.clock_ns() - start
    zero = not any(memory[:4]) and not any(memory[-4:])
    memory.close()
    return Sample({"map": float(ns)}, zero)


BENCHMARK = Benchmark(
    key="page_step",
    prose="Map memory and make its pages present: 4 KiB pages touched by memset, populated by "
    "one thread (4k-populate) or by umsh's several (4k), and large pages. Each run follows an "
    "uncounted one, so that the memory is the kernel's own and not fetched from a virtual machine's host.",
    units={"map": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    applies=real_only,
    baselines=("4k-",),
)
