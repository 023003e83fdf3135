"""Opening: each way in which there is no device gives one typed error that says what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from umsh.backends import open_device
from umsh.backends.cuda.device import CudaDevice
from umsh.errors import DeviceError

Open = Callable[[str], CudaDevice]


def test_no_device(fake: Any) -> None:
    fake.lib.fake_set_devices(0)
    with pytest.raises(DeviceError, match="shows no device"):
        open_device("cuda:0")


def test_visible_devices_empty(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES is ''"):
        open_device("cuda:0")


def test_driver_too_old(fake: Any) -> None:
    fake.lib.fake_set_version(11040)
    with pytest.raises(DeviceError, match=r"supports CUDA 11\.4"):
        open_device("cuda:0")


@pytest.mark.parametrize(("code", "name"), [(803, "SYSTEM_DRIVER_MISMATCH"), (46, "DEVICE_UNAVAILABLE")])
def test_initialisation_that_fails_names_the_code(fake: Any, code: int, name: str) -> None:
    fake.fail("cuInit", code)
    with pytest.raises(DeviceError, match=name):
        open_device("cuda:0")


def test_number_beyond_the_visible_devices(fake: Any) -> None:
    fake.machine("h200")
    with pytest.raises(DeviceError, match="Device 3 was asked for and 1 are visible"):
        open_device("cuda:3")


def test_a_forked_child_is_refused_and_frees_nothing(opened: Open, fake: Any) -> None:
    """https://github.com/inducer/pycuda/issues/137: CUDA cannot be used in a forked child."""
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = "no error"
        try:
            device.allocate("pinned", 4096, "driver")
        except DeviceError as error:
            told = str(error)
        memory.free()
        os.write(writer, f"{fake.live()['host']} {told}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    live, _, told = os.read(reader, 4096).decode().partition(" ")
    assert "was forked from" in told
    assert int(live) == fake.live()["host"]
    memory.free()


def test_the_callers_context_is_put_back(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("copy", 4096, "driver")
    memory.upload(0, 4096, device.stream()).wait(1)
    memory.free()
    assert fake.lib.fake_depth() == 0


def test_what_is_no_stream_is_refused(opened: Open) -> None:
    with pytest.raises(DeviceError, match="no CUDA stream"):
        opened("h200").stream(object())
