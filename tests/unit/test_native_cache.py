"""Cache maintenance and seeded patterns from Python; every byte at every offset is tested in C."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import numpy as np
import pytest

from umsh.native import cpu_cache_facts, ffi, lib, map_pages

NBYTES = 1 << 20
WRITES = (lib.UMSH_WRITE_ALONE, lib.UMSH_WRITE_FLUSH, lib.UMSH_WRITE_BYPASS)
READS = (lib.UMSH_READ_ALONE, lib.UMSH_READ_INVALIDATE)


@pytest.fixture
def region() -> Iterator[int]:
    mapping = map_pages(NBYTES + 4096, "4k")
    yield mapping.address
    mapping.close()


def words_at(address: int, count: int) -> np.ndarray:
    return np.frombuffer(ffi.buffer(ffi.cast("char *", address), count * 4), dtype=np.uint32)


def test_facts_name_the_instructions_of_this_cpu() -> None:
    facts = cpu_cache_facts()
    assert int(facts["line_bytes"]) in (16, 32, 64, 128, 256)
    if platform.machine() == "x86_64":
        assert facts["has_clflush"]
        assert facts["writeback"] in ("clwb", "clflushopt", "clflush")
        assert (facts["invalidate"] == "clflushopt") == facts["has_clflushopt"]
        with open("/proc/cpuinfo", encoding="ascii") as cpuinfo:
            flags = next(line for line in cpuinfo if line.startswith("flags")).split()
        assert facts["has_clwb"] == ("clwb" in flags)
        assert facts["has_clflushopt"] == ("clflushopt" in flags)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("read", READS)
def test_each_write_method_is_seen_by_each_read_method(region: int, write: int, read: int) -> None:
    lib.umsh_fill(region, NBYTES, 7, write)
    assert lib.umsh_check(region, NBYTES, 7, read) == 0
    assert lib.umsh_check(region, NBYTES, 8, read) > NBYTES // 4 - 16
    assert not words_at(region + NBYTES, 64).any()


def test_patterns_of_different_seeds_and_of_zeroed_memory_differ() -> None:
    words = {lib.umsh_pattern_word(seed, i) for seed in range(1, 9) for i in range(512)}
    assert len(words) > 8 * 512 - 8


def test_check_counts_single_wrong_words(region: int) -> None:
    lib.umsh_fill(region, NBYTES, 1, lib.UMSH_WRITE_ALONE)
    for i in (0, 1000, NBYTES // 4 - 1):
        lib.umsh_fetch_add(region + 4 * i, 1)
    assert lib.umsh_check(region, NBYTES, 1, lib.UMSH_READ_INVALIDATE) == 3


@pytest.mark.parametrize("read", READS)
def test_gather_sums_the_words_its_formula_names(region: int, read: int) -> None:
    lib.umsh_fill(region, NBYTES, 2, lib.UMSH_WRITE_ALONE)
    words, stride, count = words_at(region, NBYTES // 4), 256, 999
    places = [lib.umsh_pattern_word(5, k) % (NBYTES // stride) * stride // 4 for k in range(count)]
    expected = int(words[places].sum(dtype=np.uint64)) % 2**32
    assert lib.umsh_gather(region, NBYTES, count, 5, stride, read) == expected


def test_zero_bytes_touch_nothing() -> None:
    lib.umsh_writeback_lines(1, 0)
    lib.umsh_invalidate_lines(1, 0)
    lib.umsh_copy_bypass(1, 1, 0)
    lib.umsh_fill(4, 0, 1, lib.UMSH_WRITE_BYPASS)
    assert lib.umsh_check(4, 0, 1, lib.UMSH_READ_INVALIDATE) == 0


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("read", READS)
def test_a_described_region_publishes_and_refreshes(region: int, write: int, read: int) -> None:
    """What a native program is handed: addresses, size and two functions that keep every byte."""
    described = ffi.new("umsh_region *")
    lib.umsh_region_describe(described, region, 0x1234, NBYTES, write, read)
    assert (int(ffi.cast("uintptr_t", described.cpu)), described.device) == (region, 0x1234)
    assert described.nbytes == NBYTES
    lib.umsh_fill(region, NBYTES, 3, lib.UMSH_WRITE_ALONE)
    described.publish(described, 3, NBYTES - 3)
    described.refresh(described, 3, NBYTES - 3)
    assert lib.umsh_check(region, NBYTES, 3, lib.UMSH_READ_ALONE) == 0
