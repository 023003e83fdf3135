"""The page step of bind alone: map and prefault natively, without Python's part and without verification."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from umsh.backends.driver import Device
from umsh.microbench.definition import GIB, KIB, MIB, Benchmark, Parameters, Rig, Sample, real_only
from umsh.microbench.subjects import page_size_missing

SIZES = (4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 128 * MIB, 1 * GIB)
SIZES_QUICK = (4 * KIB, 32 * KIB, 16 * MIB)
MEMSET, POPULATE = "4k-memset", "4k-populate"
KINDS = {MEMSET: 0, POPULATE: 0, "thp": 1, "hugetlb": 2}  # UMSH_PAGES_* of native/pages.h


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    return [{"nbytes": n} for n in (SIZES_QUICK if quick else SIZES)]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    nbytes = int(parameters["nbytes"])
    found = {
        MEMSET: "",
        POPULATE: "",
        "thp": "",
    }  # below one large page thp is plain pages, and timed as such
    found["hugetlb"] = page_size_missing("hugetlb", nbytes) or _no_hugetlb(nbytes)
    return found


def _no_hugetlb(nbytes: int) -> str:
    from umsh.errors import UnsupportedError
    from umsh.native import map_pages

    try:
        map_pages(nbytes, "hugetlb").close()
    except UnsupportedError as error:
        return error.consequence
    return ""


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """Map, make every page present, look at the first and last word (new memory is zero), unmap."""
    from umsh.native import ffi, lib

    nbytes, mapping = int(parameters["nbytes"]), ffi.new("umsh_mapping *")
    start = rig.clock_ns()
    result = lib.umsh_pages_map(nbytes, KINDS[subject], subject != MEMSET, mapping)
    if subject == MEMSET and result == 0:
        ctypes.memset(mapping.address, 0, nbytes)
    ns = rig.clock_ns() - start
    ends = (mapping.address, mapping.address + nbytes - 4)
    zero = result == 0 and not any(lib.umsh_load_acquire(end) for end in ends)
    lib.umsh_pages_unmap(mapping)
    return Sample({"map": float(ns)}, zero)


BENCHMARK = Benchmark(
    key="page_step",
    prose="Map memory and make its pages present: 4 KiB pages touched by memset or populated, large pages.",
    units={"map": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    applies=real_only,
    baselines=("4k-",),
)
