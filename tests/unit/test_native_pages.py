"""Mappings: sizes, kinds and what the kernel really gave, against its own books."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from umsh.errors import DeviceError, NeedError, OutOfMemory, UnsupportedError
from umsh.native import attach_pages, ffi, lib, map_pages

MIB = 1 << 20
HUGE = lib.umsh_pages_huge_bytes()
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def smaps_huge_bytes(address: int, nbytes: int) -> int:
    """AnonHugePages and ShmemPmdMapped of the entries inside [address, address + nbytes)."""
    huge, inside = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) < address + nbytes and int(found[2], 16) > address
        elif inside and line.startswith(("AnonHugePages", "ShmemPmdMapped")):
            huge += int(line.split()[1]) * 1024
    return huge


def bytes_at(address: int, nbytes: int) -> memoryview:
    return memoryview(ffi.buffer(ffi.cast("char *", address), nbytes)).cast("B")


@pytest.mark.parametrize(
    "nbytes", [1, 4095, 4096, 4097, HUGE - 4096, HUGE, HUGE + 1, 5 * HUGE + 12345, 64 * MIB]
)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("pages", ["4k", "thp"])
def test_the_report_is_what_the_kernel_says(pages: str, shared: bool, nbytes: int) -> None:
    """Huge pages asked for may not be given, and then the report says so.

    Cases of google/gvisor#12804: https://github.com/google/gvisor/issues/12804
    """
    mapping = map_pages(nbytes, pages, shared=shared)
    memory = bytes_at(mapping.address, nbytes)
    assert not any(memory[:: max(1, nbytes // 1000)])
    memory[0] = memory[nbytes - 1] = 1
    assert mapping.nbytes == nbytes
    assert 0 <= mapping.nbytes_mapped - nbytes < os.sysconf("SC_PAGESIZE")
    assert mapping.requested == pages
    assert mapping.source in ("pagemap_scan", "smaps")
    assert mapping.huge_bytes_possible == (0 if pages == "4k" else nbytes // HUGE * HUGE)
    assert mapping.huge_bytes <= mapping.huge_bytes_possible
    assert mapping.huge_bytes == smaps_huge_bytes(mapping.address, mapping.nbytes_mapped)
    if mapping.huge_bytes_possible:
        assert mapping.address % HUGE == 0
    mapping.close()


def test_huge_pages_are_had_where_the_machine_gives_them() -> None:
    if not THP.exists() or "[never]" in THP.read_text(encoding="utf-8"):
        pytest.skip("transparent huge pages are switched off on this machine")
    mapping = map_pages(64 * MIB, "thp")
    assert mapping.huge_bytes == 64 * MIB
    mapping.close()


def test_a_silent_fall_back_to_small_pages_is_seen() -> None:
    """With huge pages disabled for the process, madvise still succeeds and the kernel says nothing.

    https://github.com/google/gvisor/issues/12804
    """
    program = (
        "import ctypes\n"
        "from umsh.native import map_pages\n"
        "assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0\n"  # PR_SET_THP_DISABLE
        "m = map_pages(64 << 20, 'thp')\n"
        "print(m.requested, m.huge_bytes, m.huge_bytes_possible, m.source)\n"
        "m = map_pages(8 << 20, 'thp', shared=True)\n"
        "print(m.huge_bytes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    requested, huge, possible, source, shared_huge = done.stdout.split()
    assert (requested, int(possible)) == ("thp", 64 * MIB)
    assert int(huge) == int(shared_huge) == 0
    assert source in ("pagemap_scan", "smaps")


@pytest.mark.parametrize("pages", ["4k", "thp"])
def test_smaps_agrees_with_the_exact_scan(pages: str) -> None:
    mapping = map_pages(16 * MIB, pages)
    exact = mapping.huge_bytes
    assert lib.umsh_pages_verify_smaps(mapping._mapping) == 0
    assert mapping.source == "smaps"
    assert mapping.huge_bytes <= exact  # never more than the truth, should entries have been merged
    mapping.close()


def test_memory_that_was_not_prefaulted_is_not_called_huge() -> None:
    mapping = map_pages(8 * HUGE, "thp", prefault=False)
    assert mapping.huge_bytes == 0
    bytes_at(mapping.address, 1)[0] = 1
    assert mapping.verify() in (0, HUGE)
    mapping.close()


def test_collapse_fills_the_holes_and_keeps_the_bytes() -> None:
    mapping = map_pages(4 * HUGE, "thp", prefault=False)
    memory = bytes_at(mapping.address, mapping.nbytes)
    memory[HUGE] = 7
    huge = mapping.collapse(timeout_s=10)
    assert huge <= mapping.huge_bytes_possible
    assert mapping.huge_bytes == smaps_huge_bytes(mapping.address, mapping.nbytes_mapped)
    assert memory[HUGE] == 7
    mapping.close()


def test_a_second_mapping_of_shared_memory_sees_the_same_bytes() -> None:
    first = map_pages(3 * MIB, "4k", shared=True)
    second = attach_pages(first.fd, 3 * MIB, "4k")
    assert second.requested == "4k"
    assert second.huge_bytes_possible == 0
    bytes_at(first.address, 3 * MIB)[2 * MIB] = 9
    first.close()
    assert bytes_at(second.address, 3 * MIB)[2 * MIB] == 9
    second.close()


def test_a_forked_child_that_closes_a_mapping_frees_nothing() -> None:
    mapping = map_pages(1 * MIB, "4k", shared=True)
    bytes_at(mapping.address, 1)[0] = 5
    child = os.fork()
    if child == 0:
        try:
            fd, address = mapping.fd, mapping.address
            mapping.close()
            os.fstat(fd)
            os._exit(bytes_at(address, 1)[0])
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    mapping.close()


@pytest.mark.parametrize("nbytes", [0, -1, 1 << 63])
def test_impossible_sizes_are_refused(nbytes: int) -> None:
    with pytest.raises(NeedError, match="were asked for"):
        map_pages(nbytes)


@pytest.mark.parametrize("shared", [False, True])
def test_more_than_the_address_space_is_out_of_memory(shared: bool) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MemoryError) as caught:
        map_pages(1 << 50, "thp", shared=shared, prefault=False)
    assert isinstance(caught.value, OutOfMemory)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_unknown_kind_and_missing_file_are_typed() -> None:
    with pytest.raises(NeedError, match="'1g'"):
        map_pages(4096, "1g")
    with pytest.raises(NeedError, match="'1g'"):
        attach_pages(0, 4096, "1g")
    with pytest.raises(DeviceError, match="cannot be attached"):
        attach_pages(-1, 4096)


def test_hugetlb_is_given_or_refused_with_the_reason() -> None:
    free = re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"))
    assert free
    if int(free[1]) < 2:
        with pytest.raises(UnsupportedError, match="nr_hugepages"):
            map_pages(2 * HUGE, "hugetlb")
        return
    mapping = map_pages(HUGE + 1, "hugetlb")
    assert mapping.huge_bytes == mapping.nbytes_mapped == 2 * HUGE
    mapping.close()


def test_closing_twice_and_dropping_give_the_memory_back_once() -> None:
    mapping = map_pages(8 * MIB, "thp", shared=True)
    address = mapping.address
    mapping.close()
    mapping.close()
    assert mapping.address == 0
    mapping = map_pages(8 * MIB, "4k")
    address = mapping.address
    del mapping
    gc.collect()
    assert f"{address:x}-" not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_shared_memory_that_is_dropped_unclosed_leaves_no_descriptor() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    mappings = [map_pages(4096, "4k", shared=True) for _ in range(8)]
    assert len(os.listdir("/proc/self/fd")) == before + 8
    del mappings
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
