"""Usable memory, control groups and recognition, with injected facts: every machine's case on this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import umsh.machine
from umsh.errors import DeviceError, OutOfMemory
from umsh.machine import (
    GroupLimit,
    MemoryInfo,
    Platform,
    check_room,
    group_limits,
    machine_facts,
    read_meminfo,
    recognise,
    usable_memory,
)

GIB = 1 << 30
MEMINFO = """\
MemTotal:       16777216 kB
MemFree:         1048576 kB
MemAvailable:   12582912 kB
Buffers:          524288 kB
Cached:         11534336 kB
Shmem:           1048576 kB
HugePages_Total:       0
"""


def test_page_cache_counts_as_usable_on_unified_memory() -> None:
    """The driver's free figure follows MemFree (1 GiB); a start was refused for it.

    https://github.com/vllm-project/vllm/issues/48140
    """
    info = usable_memory(True, (1 * GIB, 16 * GIB), MEMINFO)
    assert info == MemoryInfo(12 * GIB, 16 * GIB, "MemAvailable")


def test_a_discrete_card_is_never_taken_for_unified() -> None:
    """A 32 GiB card was reported with the host's 55 GiB: sizes and ratios must not decide.

    https://github.com/vllm-project/vllm/pull/46932
    """
    for device in ((30 * GIB, 32 * GIB), (500 * GIB, 512 * GIB), (1, 2)):
        info = usable_memory(False, device, MEMINFO)
        assert info == MemoryInfo(device[0], device[1], "device driver")


def test_a_discrete_card_without_a_figure_is_an_error() -> None:
    with pytest.raises(DeviceError, match="no memory figure"):
        usable_memory(False, None, MEMINFO)


def test_missing_memavailable_is_estimated_and_named() -> None:
    """Injected text of an old kernel, https://github.com/vllm-project/vllm/issues/48140"""
    info = usable_memory(True, None, MEMINFO.replace("MemAvailable", "Other"))
    assert info == MemoryInfo(int(11.5 * GIB), 16 * GIB, "MemFree + Buffers + Cached - Shmem")


@pytest.mark.parametrize(("figure", "usable"), [("0", 0), ("99999999999999", 16 * GIB)])
def test_zero_and_huge_memavailable_stay_within_the_machine(figure: str, usable: int) -> None:
    assert usable_memory(True, None, MEMINFO.replace("12582912", figure)).usable_bytes == usable


def test_more_shared_memory_than_cache_is_never_negative() -> None:
    """Difference-based figures went to -35.7 GiB, https://github.com/vllm-project/vllm/issues/48140"""
    text = "MemTotal: 1000 kB\nMemFree: 1 kB\nShmem: 900 kB\n"
    assert usable_memory(True, None, text).usable_bytes == 0


@pytest.mark.parametrize("text", ["", "MemAvailable: 5 kB\n", "MemTotal: unknown\n", "\0\0\0"])
def test_meminfo_without_a_total_is_an_error(text: str) -> None:
    with pytest.raises(DeviceError, match="MemTotal"):
        usable_memory(True, None, text)


def test_a_control_group_cuts_what_is_usable() -> None:
    group = GroupLimit(4 * GIB, 3 * GIB, 2 * GIB, "cgroup v2 memory.max of /x")
    info = usable_memory(True, None, MEMINFO, [group])
    assert info == MemoryInfo(3 * GIB, 4 * GIB, "cgroup v2 memory.max of /x")


def test_the_tightest_control_group_wins() -> None:
    groups = [GroupLimit(8 * GIB, GIB, 0, "outer"), GroupLimit(2 * GIB, GIB, 0, "inner")]
    for order in (groups, groups[::-1]):
        info = usable_memory(True, None, MEMINFO, order)
        assert (info.usable_bytes, info.total_bytes, info.source) == (GIB, 2 * GIB, "inner")


def test_a_group_over_its_limit_leaves_nothing() -> None:
    group = GroupLimit(GIB, 2 * GIB, 0, "over")
    assert usable_memory(True, None, MEMINFO, [group]).usable_bytes == 0


def test_a_wide_group_changes_nothing() -> None:
    group = GroupLimit(1 << 50, GIB, 0, "wide")
    assert usable_memory(True, None, MEMINFO, [group]).source == "MemAvailable"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_version_2_groups_are_read_up_to_the_root(tmp_path: Path) -> None:
    stat = "anon 5\nactive_file 100\ninactive_file 200\n"
    write(tmp_path / "a", memory__max="1000\n", memory__current="700\n", memory__stat=stat)
    write(tmp_path / "a" / "b", memory__max="max\n", memory__current="600\n", memory__stat=stat)
    limits = group_limits("0::/a/b\n", tmp_path)
    assert [(g.limit_bytes, g.used_bytes, g.cache_bytes) for g in limits] == [(1000, 700, 300)]
    assert str(tmp_path / "a") in limits[0].source


def test_version_1_groups_are_read(tmp_path: Path) -> None:
    stat = "total_active_file 10\ntotal_inactive_file 20\n"
    write(
        tmp_path / "memory" / "job",
        memory__limit_in_bytes="5000\n",
        memory__usage_in_bytes="900\n",
        memory__stat=stat,
    )
    write(tmp_path / "memory", memory__limit_in_bytes="9223372036854771712\n")
    limits = group_limits("4:cpu,cpuacct:/\n9:memory:/job\n0::/\n", tmp_path)
    assert [(g.limit_bytes, g.used_bytes, g.cache_bytes) for g in limits] == [(5000, 900, 30)]


def test_a_containers_own_group_is_the_root_it_sees(tmp_path: Path) -> None:
    write(tmp_path, memory__max="77\n", memory__current="7\n")
    assert [g.limit_bytes for g in group_limits("0::/not/visible/here\n", tmp_path)] == [77]


def test_no_groups_no_limits(tmp_path: Path) -> None:
    assert group_limits("", tmp_path) == ()
    assert group_limits("0::/\n", tmp_path) == ()


def test_room_is_refused_before_the_machine_is_starved() -> None:
    info = MemoryInfo(4 * GIB, 16 * GIB, "MemAvailable")
    check_room(3 * GIB, info)
    with pytest.raises(OutOfMemory, match="MemAvailable"):
        check_room(4 * GIB, info)  # would leave nothing to the system
    with pytest.raises(MemoryError):
        check_room(1 << 62, info)


def test_this_machine_answers() -> None:
    facts = machine_facts()
    assert facts["page_bytes"] == os.sysconf("SC_PAGE_SIZE")
    assert facts["cpus"]
    info = usable_memory(True, None, read_meminfo(), group_limits())
    assert 0 < info.usable_bytes <= info.total_bytes


@pytest.mark.parametrize(
    ("device", "features", "reports"),
    [
        ("0x0005", "011001", True),
        ("0x0005", "011000", False),
        ("0x0005", "01", False),
        ("0x0002", "011001", False),
    ],
)
def test_a_host_that_takes_free_memory_back_is_a_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, features: str, reports: bool
) -> None:
    """VIRTIO 1.2, section 5.5.3: VIRTIO_BALLOON_F_PAGE_REPORTING is bit 5 of device 5."""
    write(tmp_path / "virtio0", device=f"{device}\n", features=features.ljust(128, "0") + "\n")
    monkeypatch.setattr(umsh.machine, "VIRTIO", tmp_path)
    assert machine_facts()["free_page_reporting"] is reports


def test_the_file_in_the_page_cache_stays_usable(tmp_path: Path) -> None:
    """The minimal input of report A02 at a size that suits a test machine.

    https://github.com/ollama/ollama/issues/12283
    """
    size = 64 << 20
    path = tmp_path / "cached"
    path.write_bytes(bytes(size))
    path.read_bytes()
    figures = dict(line.split(":", 1) for line in read_meminfo().splitlines())
    free = int(figures["MemFree"].split()[0]) * 1024
    assert usable_memory(True, (free, free), read_meminfo()).usable_bytes > free


def platform(name: str, driver: str, key: str) -> Platform:
    return Platform(name, driver, lambda facts: key if facts.get(key) else "", (), (), "cas", "thread", "")


def test_platforms_are_recognised_by_asked_facts_of_their_driver() -> None:
    known = [platform("a", "cuda", "integrated"), platform("b", "opencl", "integrated")]
    found = recognise(known, "opencl", {"integrated": True, "device": "Grand Marketing Name 9000"})
    assert found == (known[1], "integrated")
    assert recognise(known, "opencl", {"device": "Grand Marketing Name 9000"}) is None
