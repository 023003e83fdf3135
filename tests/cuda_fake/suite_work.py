"""Work on the device: waits have a bound, a lost device is told, launches are checked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from umsh.backends.cuda.device import CudaDevice
from umsh.backends.cuda.launch import SLOTS
from umsh.errors import DeviceError, NeedError, UnsupportedError, WaitTimeout

FOLDER = Path(__file__).parent
Open = Callable[[str], CudaDevice]


def test_a_kernel_that_never_returns_is_a_timeout_that_says_so(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    fake.lib.fake_set_pending(1)
    work = device.gpu.fill(memory, 0, 4096, 1, "WA")
    with pytest.raises(WaitTimeout, match="only ending this process frees the device"):
        work.result(0.01)
    with pytest.raises(WaitTimeout):
        device.stream(1).synchronize(0.01)
    fake.lib.fake_set_pending(0)
    work.result(1)


def test_a_device_lost_in_mid_run(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    work = device.gpu.fill(memory, 0, 4096, 1, "WA")
    fake.fail("cuEventQuery", 719)
    with pytest.raises(DeviceError, match="a kernel ended abnormally"):
        work.result(1)


def test_a_launch_that_fails_names_the_kernel(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    fake.fail("cuLaunchKernel", 1)
    with pytest.raises(DeviceError, match="launch of umsh_fill gave CUDA_ERROR_INVALID_VALUE"):
        device.gpu.fill(memory, 0, 4096, 1, "WA")
    device.gpu.fill(memory, 0, 4096, 1, "WA").result(1)


def test_results_may_be_read_in_any_order_up_to_the_slots(opened: Open) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    works = [device.gpu.check(memory, 0, 4096, 1, "RA") for _ in range(SLOTS)]
    for work in reversed(works):
        assert work.result(1) == 0
    old = device.gpu.check(memory, 0, 4096, 1, "RA")
    for _ in range(SLOTS):
        device.gpu.check(memory, 0, 4096, 1, "RA")
    with pytest.raises(DeviceError, match="later launches came before"):
        old.result(1)


def test_memory_dropped_under_a_running_kernel_stays_until_it_is_over(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("registered", 4096, "4k")
    before = fake.live()["registered"]
    fake.lib.fake_set_pending(1)
    work = device.gpu.fill(memory, 0, 4096, 1, "WA")
    del memory
    assert fake.live()["registered"] == before
    fake.lib.fake_set_pending(0)
    work.result(1)
    assert fake.live()["registered"] == before - 1


def test_memory_of_work_nobody_asks_for_goes_with_its_slot(opened: Open, fake: Any) -> None:
    device = opened("h200")
    other = device.allocate("pinned", 4096, "driver")
    memory = device.allocate("registered", 4096, "4k")
    before = fake.live()["registered"]
    device.gpu.fill(memory, 0, 4096, 1, "WA")
    del memory
    for _ in range(SLOTS):
        device.gpu.fill(other, 0, 4096, 1, "WA")
    assert fake.live()["registered"] == before - 1


def test_no_memory_is_freed_under_a_kernel_at_exit(fake: Any, tmp_path: Path) -> None:
    """The child counts what its own exit frees, from a destructor of the library that runs after Python's."""
    program = """
import umsh.backends.cuda.program as program
program.compiled = lambda path, capability: b"image"
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import machines
from umsh.backends.cuda.calls import initialise
from umsh.backends.cuda.device import CudaDevice
lib = ctypes.CDLL("libcuda.so.1")
for attribute, value in machines.MACHINES["h200"].items():
    lib.fake_set_attribute(machines.NUMBERS[attribute], value)
initialise()
device = CudaDevice(0)
memory = device.allocate("registered", 4096, "4k")
lib.fake_set_pending(1)
work = device.gpu.fill(memory, 0, 4096, 1, "WA")
lib.fake_tell_at_exit()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(FOLDER)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "registered 1\n"), ended.stderr


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 0), (-4, 8), (2, 8), (0, 6), (4096, 4), (8, 4096)])
def test_ranges_that_are_no_words_of_the_region(opened: Open, offset: int, nbytes: int) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    with pytest.raises(NeedError, match="no whole words"):
        device.gpu.fill(memory, offset, nbytes, 1, "WA")


def test_unknown_methods_and_algorithms(opened: Open) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    with pytest.raises(UnsupportedError, match="'RA' is none of WA"):
        device.gpu.fill(memory, 0, 4096, 1, "RA")
    with pytest.raises(UnsupportedError, match="'mutex' is none of"):
        device.gpu.lock_rounds(memory, memory, 1, "mutex", 1)


def test_pollers_are_bounded_by_what_runs_at_once(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    most = device.gpu.pollers_max("grid")
    assert most == 16 * 1024
    with pytest.raises(UnsupportedError, match=f"at most {most} at once"):
        device.gpu.poll(memory, "thread", most + 1, 1)
    fake.lib.fake_set_attribute(95, 0)
    assert opened("h200").gpu.pollers_max("block") == most


def test_no_grid_level_without_cooperative_launch(opened: Open, fake: Any, monkeypatch: Any) -> None:
    device = opened("h200")
    monkeypatch.setitem(device.attributes, "cooperative_launch", 0)
    assert device.gpu.pollers_max("grid") == 0


def test_grid_level_is_launched_cooperatively(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    device.gpu.poll(memory, "grid", 1024, 3).result(1)
    assert fake.calls("cuLaunchCooperativeKernel") == 1


def test_no_stream_stands_for_the_whole_device(opened: Open, fake: Any) -> None:
    device = opened("h200")
    device.stream().synchronize(1)
    assert fake.calls("cuCtxSynchronize") == 1
    device.stream(None).record().wait(1)
    assert fake.calls("cuCtxRecordEvent") == 1


def test_drivers_without_context_events_synchronise_instead(opened: Open, fake: Any) -> None:
    fake.lib.fake_set_version(12020)
    device = opened("h200")
    device.stream().record().wait(1)
    assert fake.calls("cuCtxRecordEvent") == 0
    assert fake.calls("cuCtxSynchronize") == 1
