"""What the modelled device adds to the drivers' contract: virtual time, a label, never a default."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from umsh.backends import DEFAULT_DRIVERS, drivers, open_device
from umsh.backends.driver import Device
from umsh.errors import NeedError, OutOfMemory, UnsupportedError, WaitTimeout

SECONDS = 10.0


@pytest.fixture
def model() -> Device:
    return open_device("model:")


def test_it_is_labelled_and_never_a_default(model: Device) -> None:
    assert model.provenance == "modelled"
    assert "model" in drivers()
    assert "model" not in DEFAULT_DRIVERS


def test_its_clock_moves_with_work_only(model: Device) -> None:
    before = model.clock_ns()
    assert model.clock_ns() == before
    memory = model.allocate("coherent", 1 << 20, "driver")
    model.cpu.fill(memory, 0, 1 << 20, 1, "WA").result(SECONDS)
    small = model.clock_ns() - before
    model.cpu.fill(memory, 0, 1 << 10, 1, "WA").result(SECONDS)
    assert 0 < model.clock_ns() - before - small < small


def test_time_does_not_depend_on_the_machine() -> None:
    def ran() -> int:
        device = open_device("model:")
        words = device.allocate("coherent", 4096, "driver")
        gpu = device.gpu.echo(words, 50, False)
        device.cpu.echo(words, 50, True).result(SECONDS)
        gpu.result(SECONDS)
        return device.clock_ns()

    assert ran() == ran()


def test_every_method_on_incoherent_memory_shows_what_it_publishes(model: Device) -> None:
    memory = model.allocate("cached", 4096, "driver")
    model.gpu.check(memory, 0, 4096, 9, "RA").result(SECONDS)
    for seed, (write, read, right) in enumerate(
        [("WF", "RA", True), ("WBp", "RA", True), ("WA", "RA", False), ("WA", "RI", False)], 1
    ):
        model.cpu.fill(memory, 0, 4096, seed, write).result(SECONDS)
        wrong = model.gpu.check(memory, 0, 4096, seed, read).result(SECONDS)
        assert (wrong == 0) is right, f"{write}/{read}"


def test_work_is_done_when_its_event_is(model: Device) -> None:
    memory = model.allocate("coherent", 4096, "driver")
    model.gpu.fill(memory, 0, 4096, 3, "WA")
    event = model.stream().record()
    assert not event.done()
    event.wait(SECONDS)
    assert event.done()
    model.stream().synchronize(SECONDS)


def test_waits_end_in_virtual_time(model: Device) -> None:
    lonely = model.gpu.echo(model.allocate("coherent", 4096, "driver"), 5, False)
    with pytest.raises(WaitTimeout):
        lonely.result(1e-3)
    assert lonely.result(SECONDS) == 0


def test_the_callers_bytes_are_used_in_place(model: Device) -> None:
    array = np.zeros(1024, np.uint32)
    memory = model.adopt("coherent", array.ctypes.data, array.nbytes, array)
    model.gpu.fill(memory, 0, array.nbytes, 1, "WA").result(SECONDS)
    assert array.any()


def test_bad_requests_are_typed_errors(model: Device) -> None:
    with pytest.raises(NeedError):
        model.allocate("coherent", 0, "driver")
    with pytest.raises(OutOfMemory):
        model.allocate("coherent", 1 << 40, "driver")
    with pytest.raises(UnsupportedError):
        model.allocate("moon", 64, "driver")
    with pytest.raises(UnsupportedError):
        model.allocate("coherent", 64, "thp")
    with pytest.raises(UnsupportedError):
        model.cpu.lock_rounds(*[model.allocate("coherent", 4096, "driver")] * 2, 1, "moon", 1)


def test_opening_it_needs_no_gpu_runtime() -> None:
    code = "import sys, umsh.backends as b; b.open_device('model:'); sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
