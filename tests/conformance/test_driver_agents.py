"""Every driver's agents: flags, locks and pollers between CPU and GPU, each bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from umsh.backends.driver import Device, Memory
from umsh.errors import UnsupportedError, WaitTimeout

SECONDS = 60.0
ROUNDS = 200
Words = Callable[[], Memory]


@pytest.fixture
def words(device: Device) -> Words:
    """Makes zeroed control words of the first kind that is documented while a kernel runs."""
    inside = [kind for kind in device.memory_kinds() if kind.inside and not kind.absent]
    if not inside:
        pytest.skip(f"driver {device.driver}: no memory kind is documented while a kernel runs")
    return lambda: device.allocate(inside[0].name, 4096, inside[0].pages[0])


@pytest.mark.parametrize("cpu_first", [True, False])
def test_flags_pass_both_ways_without_loss(device: Device, words: Words, cpu_first: bool) -> None:
    memory = words()
    gpu = device.gpu.echo(memory, ROUNDS, not cpu_first)
    cpu = device.cpu.echo(memory, ROUNDS, cpu_first)
    assert (gpu.result(SECONDS), cpu.result(SECONDS)) == (ROUNDS, ROUNDS)


def test_locks_keep_every_increment(device: Device, words: Words) -> None:
    usable = [name for name, missing in device.lock_algorithms().items() if not missing]
    if device.facts().get("host_native_atomic_supported") == 0:  # only loads and stores may cross the link
        usable = [name for name in usable if name not in ("cas", "ticket")]
    for algorithm in usable:
        lock, counter = words(), words()
        gpu = device.gpu.lock_rounds(lock, counter, ROUNDS, algorithm, 2)
        cpu = device.cpu.lock_rounds(lock, counter, ROUNDS, algorithm, 2)
        done = gpu.result(SECONDS) + cpu.result(SECONDS)
        assert done == 4 * ROUNDS, algorithm
        assert device.cpu.gather(counter, 1, 0, counter.nbytes, "RA").result(SECONDS) == done, algorithm


@pytest.mark.parametrize("level", ["thread", "block", "grid", "kernel"])
def test_pollers_at_every_level_all_see_every_round(device: Device, words: Words, level: str) -> None:
    most = device.gpu.pollers_max(level)
    if most == 0:
        pytest.skip(f"driver {device.driver}: no pollers at {level!r} level")
    for threads in sorted({1, min(most, 2), min(most, 64)}):
        memory = words()
        pollers = device.gpu.poll(memory, level, threads, 5)
        setter = device.cpu.echo(memory, 5, True)
        assert (pollers.result(SECONDS), setter.result(SECONDS)) == (5, 5), threads


def test_cpu_pollers_wait_for_the_gpu(device: Device, words: Words) -> None:
    memory = words()
    pollers = device.cpu.poll(memory, "thread", 2, 5)
    setter = device.gpu.echo(memory, 5, True)
    assert (pollers.result(SECONDS), setter.result(SECONDS)) == (5, 5)


def test_more_pollers_than_can_run_are_refused_not_hung(device: Device, words: Words) -> None:
    for level in ("thread", "block", "grid", "kernel"):
        with pytest.raises(UnsupportedError):
            device.gpu.poll(words(), level, device.gpu.pollers_max(level) + 1, 1)


def test_a_wait_without_partner_ends(device: Device, words: Words) -> None:
    """The waiter gets WaitTimeout, and the device is free again for later work."""
    for agent in (device.gpu, device.cpu):
        memory = words()
        lonely = agent.echo(memory, 10, False)
        with pytest.raises(WaitTimeout):
            lonely.result(0.05)
    memory = words()
    device.gpu.fill(memory, 0, 4096, 1, "WF").result(SECONDS)
    assert device.cpu.check(memory, 0, 4096, 1, "RI").result(SECONDS) == 0


def test_absent_methods_are_refused_with_their_fact(device: Device, words: Words) -> None:
    for agent in (device.cpu, device.gpu):
        for method, missing in agent.methods().items():
            if not missing:
                continue
            work = agent.fill if method.startswith("W") else agent.check
            with pytest.raises(UnsupportedError, match=method):
                work(words(), 0, 4, 0, method)


def test_unknown_lock_algorithms_are_refused(device: Device, words: Words) -> None:
    for agent in (device.cpu, device.gpu):
        with pytest.raises(UnsupportedError, match="spin"):
            agent.lock_rounds(words(), words(), 1, "spin", 1)
