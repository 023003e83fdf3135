"""Described machines as devices: labels, safe defaults, splitting large pages, order and time."""

from __future__ import annotations

import pytest

from umsh.backends import open_device, platform_of
from umsh.backends.model.description import described, load
from umsh.errors import DeviceError, UnsupportedError
from umsh.need import Need
from umsh.possible import safe_mechanisms

SECONDS = 10.0
MIB = 1 << 20


@pytest.mark.parametrize("name", described())
def test_it_says_what_it_is_a_model_of(name: str) -> None:
    device = open_device(f"model:{name}")
    found = platform_of(device)
    assert device.provenance == "modelled"
    assert found is not None
    assert found[0].name == name


@pytest.mark.parametrize("name", described())
def test_its_default_needs_neither_patch_nor_debug_key(name: str) -> None:
    device = open_device(f"model:{name}")
    found = platform_of(device)
    assert found is not None
    machine = load(name)
    for mechanism in safe_mechanisms(device, Need("both", "cpu", "kernel", MIB), found[0]):
        assert machine.kind(mechanism.memory).reach == "public"
        assert machine.kind(mechanism.memory).documented


def random_read_ns(which: str, pages: str) -> float:
    device = open_device(which)
    memory = device.allocate("usm-host", 256 * MIB, pages)
    start = device.clock_ns()
    device.cpu.gather(memory, 1000, 1, 64, "RA").result(SECONDS)
    return device.clock_ns() - start


def test_large_pages_that_split_silently_show_in_random_reads() -> None:
    """The planted fault thp_splits: the kernel reports large pages, the TLB says otherwise."""
    assert random_read_ns("model:lunar", "thp") < random_read_ns("model:lunar", "4k")
    assert random_read_ns("model:lunar,thp_splits", "thp") == random_read_ns("model:lunar", "4k")


def test_large_blocks_are_verified_too() -> None:
    device = open_device("model:arrow")
    memory = device.allocate("buffer", 64 * MIB, "thp")
    device.cpu.check(memory, 0, 64 * MIB, 1, "RA").result(SECONDS)
    device.gpu.fill(memory, 0, 64 * MIB, 1, "WA").result(SECONDS)
    assert device.cpu.check(memory, 0, 64 * MIB, 1, "RA").result(SECONDS) > 0
    assert device.cpu.check(memory, 0, 64 * MIB, 1, "RI").result(SECONDS) == 0


def test_the_harness_words_carry_no_data() -> None:
    device = open_device("model:lunar")
    memory = device.allocate("words", 4096, "driver")
    with pytest.raises(UnsupportedError, match="litmus"):
        device.cpu.fill(memory, 0, 64, 1, "WA")


def test_memory_comes_back_when_it_is_freed() -> None:
    device = open_device("model:lunar")
    before = device.memory_info()[0]
    memory = device.allocate("usm-host", MIB, "4k")
    assert device.memory_info()[0] == before - MIB
    memory.free()
    memory.free()
    assert device.memory_info()[0] == before


def test_a_machine_that_is_none_is_refused() -> None:
    with pytest.raises(DeviceError, match="moon"):
        open_device("model:moon")
