"""The modelled machine's rules of memory, one at a time."""

from __future__ import annotations

import random

import pytest

from umsh.backends.model.memory import KINDS, ModelMemory
from umsh.backends.model.port import Port

COHERENT, CACHED = KINDS
FAR = 256


def machine(*faults: str) -> tuple[Port, Port]:
    chance = random.Random(1)
    cpu, gpu = Port("cpu", frozenset(faults), chance), Port("gpu", frozenset(faults), chance)
    cpu.other, gpu.other = gpu, cpu
    return cpu, gpu


def test_an_agent_sees_its_own_stores_at_once() -> None:
    for port in machine():
        memory = ModelMemory(COHERENT, 1024)
        port.store(memory, 0, 7)
        assert port.load(memory, 0) == 7


def test_the_other_agent_sees_a_store_when_it_leaves_the_buffer() -> None:
    cpu, gpu = machine()
    memory = ModelMemory(COHERENT, 1024)
    cpu.store(memory, 0, 7, 4, "relaxed")
    assert gpu.load(memory, 0, 4, "relaxed") == 0
    cpu.drain()
    assert gpu.load(memory, 0, 4, "relaxed") == 7


def test_cpu_stores_leave_in_order() -> None:
    cpu, _ = machine()
    memory = ModelMemory(COHERENT, 1024)
    cpu.store(memory, 0, 1)
    cpu.store(memory, FAR, 1)
    cpu.drain_one()
    assert memory.view[0] == 1
    assert memory.view[FAR] == 0


def orders_seen(order: str, *faults: str) -> set[tuple[int, int]]:
    """(payload, flag) in memory after one of the GPU's two stores has left."""
    seen = set()
    _, gpu = machine(*faults)
    for _ in range(50):
        memory = ModelMemory(COHERENT, 1024)
        gpu.store(memory, 0, 1)
        gpu.store(memory, FAR, 1, 4, order)
        gpu.drain_one()
        seen.add((memory.view[0], memory.view[FAR]))
        gpu.drain()
    return seen


def test_gpu_stores_leave_in_any_order_but_for_a_release() -> None:
    assert orders_seen("relaxed") == {(1, 0), (0, 1)}
    assert orders_seen("release") == {(1, 0)}
    assert orders_seen("release", "reorder") == {(1, 0), (0, 1)}


def test_stores_to_one_word_never_overtake_each_other() -> None:
    for faults in ((), ("reorder",)):
        for port in machine(*faults):
            for _ in range(50):
                memory = ModelMemory(COHERENT, 1024)
                port.store(memory, 0, 1, 4, "relaxed")
                port.store(memory, 0, 2, 4, "relaxed")
                port.drain()
                assert memory.view[0] == 2


def test_the_gpu_hears_of_an_overwritten_line_at_its_acquire() -> None:
    cpu, gpu = machine()
    memory = ModelMemory(COHERENT, 1024)
    assert gpu.load(memory, 0) == 0
    cpu.store(memory, 0, 7)
    cpu.drain()
    assert gpu.load(memory, 0) == 0
    gpu.fence("acquire")
    assert gpu.load(memory, 0) == 7


def test_a_lost_invalidation_is_never_heard() -> None:
    cpu, gpu = machine("stale")
    stale = 0
    for _ in range(50):
        memory = ModelMemory(COHERENT, 1024)
        gpu.load(memory, 0)
        cpu.store(memory, 0, 7)
        cpu.drain()
        gpu.fence("acquire")
        stale += gpu.load(memory, 0) == 0
        assert gpu.read(memory, 0, "RI") == 7
    assert 0 < stale < 50


def test_a_private_line_shows_only_after_write_back_and_invalidation() -> None:
    cpu, gpu = machine()
    memory = ModelMemory(CACHED, 1024)
    assert gpu.load(memory, 0) == 0
    cpu.write(memory, 0, 7, "WA")
    cpu.drain()
    assert gpu.read(memory, 0, "RB") == 0
    cpu.write(memory, 0, 7, "WF")
    assert gpu.read(memory, 0, "RA") == 0
    assert gpu.read(memory, 0, "RB") == 7
    assert gpu.read(memory, 0, "RI") == 7


def test_invalidation_writes_back_first_so_a_dirty_line_destroys_what_the_other_wrote() -> None:
    """The trap of user-space invalidation: a reader must not leave dirty lines behind."""
    cpu, gpu = machine()
    memory = ModelMemory(CACHED, 1024)
    cpu.write(memory, 4, 1, "WA")
    cpu.drain()
    gpu.write(memory, 0, 7, "WBp")
    gpu.drain()
    assert cpu.read(memory, 0, "RI") == 0
    assert memory.view[0] == 0


def test_the_drivers_work_between_kernels_empties_the_gpu_only() -> None:
    cpu, gpu = machine()
    memory = ModelMemory(CACHED, 1024)
    for port, offset in ((gpu, 0), (cpu, FAR)):
        port.write(memory, offset, 7, "WA")
        port.settle()
    assert memory.view[0] == 7
    assert memory.view[FAR] == 0


@pytest.mark.parametrize("nbytes", [2, 4])
def test_a_torn_store_arrives_in_halves(nbytes: int) -> None:
    for faults, whole in (((), True), (("torn",), False)):
        cpu, _ = machine(*faults)
        memory = ModelMemory(COHERENT, 1024)
        cpu.store_pair(memory, 0, 1, nbytes, "relaxed")
        cpu.drain_one()
        assert (memory.view[nbytes] == 1) is whole


def test_a_flush_that_skips_a_line_leaves_exactly_one_behind() -> None:
    cpu, gpu = machine("flush_skips_line")
    memory = ModelMemory(CACHED, 4096)
    cpu.write_block(memory, 0, b"\x01" * 1024, "WF")
    seen = gpu.read_block(memory, 0, 1024, "RI")
    assert seen.count(0) == 64


def test_a_fence_empties_the_store_buffer_unless_at_fault() -> None:
    for faults, seen in (((), 1), (("reorder",), 0)):
        cpu, _ = machine(*faults)
        memory = ModelMemory(COHERENT, 1024)
        cpu.store(memory, 0, 1)
        cpu.fence("seq_cst")
        assert memory.view[0] == seen
