"""Intel unified shared memory, where a runtime has it: `pip install umsh[intel-cpu]` gives one for CPUs."""

from __future__ import annotations

import numpy as np
import pytest

from umsh.backends.opencl import runtime
from umsh.backends.opencl.device import OpenCLDevice
from umsh.backends.opencl.usm import EXTENSION
from umsh.backends.pages import view
from umsh.errors import DeviceError

KINDS = ["usm-host", "usm-shared"]


@pytest.fixture(scope="module")
def device() -> OpenCLDevice:
    try:
        usable, _ = runtime.candidates()
    except DeviceError as error:
        pytest.skip(f"no OpenCL device: {error}")
    for number, native in enumerate(usable):
        if EXTENSION in native.extensions:
            return runtime.opened(number, OpenCLDevice)
    pytest.skip(f"no OpenCL device with {EXTENSION} (pip install intel-opencl-rt intel-cmplr-lib-rt)")


@pytest.mark.parametrize("kind", KINDS)
def test_one_address_serves_both_agents(device: OpenCLDevice, kind: str) -> None:
    memory = device.allocate(kind, 1 << 16, "driver")
    assert memory.address == memory.device_address
    assert memory.address % 4096 == 0
    words = view(memory.address, memory.nbytes).view(np.uint32)
    assert not words.any()
    device.gpu.fill(memory, 0, 1 << 16, 1, "WF").result(30)
    assert device.cpu.check(memory, 0, 1 << 16, 1, "RI").result(30) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_flag_passes_while_a_kernel_runs(device: OpenCLDevice, kind: str) -> None:
    found = {k.name: k for k in device.memory_kinds()}[kind]
    if not found.inside:
        pytest.skip(f"{device.name}: {kind} lacks the concurrent access and atomics capabilities")
    words = device.allocate(kind, 4096, "driver")
    gpu, cpu = device.gpu.echo(words, 500, False), device.cpu.echo(words, 500, True)
    assert (gpu.result(60), cpu.result(60)) == (500, 500)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_really_given_back(device: OpenCLDevice, kind: str) -> None:
    before = device.memory_info()[0]
    for _ in range(20):
        device.allocate(kind, 64 << 20, "driver").free()
    assert device.memory_info()[0] > before - (640 << 20)
