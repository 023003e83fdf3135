"""The device suite's items: one for each litmus test, driver, subject and direction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from umsh.backends import DEFAULT_DRIVERS, open_device
from umsh.backends.driver import Device
from umsh.correctness.force import force_of
from umsh.correctness.litmus import tests
from umsh.correctness.options import SEED, N, pytest_addoption
from umsh.correctness.subjects import ONE_WAY, subjects
from umsh.errors import DeviceError

__all__ = ["pytest_addoption", "pytest_generate_tests"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "verdict_of" in metafunc.fixturenames:
        only = metafunc.config.getoption("--litmus-device", "")
        names = [only] if only else [f"{driver}:0" for driver in DEFAULT_DRIVERS]
        devices, reasons = _open(names)
        n = metafunc.config.getoption("--litmus-n", N)
        seed = metafunc.config.getoption("--litmus-seed", SEED)
        items = [item for device in devices for item in _items(device, n, seed)]
        if not items:
            told = f"no device: {'; '.join(reasons)}"
            items = [pytest.param(None, marks=pytest.mark.skip(reason=told), id="no-device")]
        metafunc.parametrize("verdict_of", items)


def _open(names: list[str]) -> tuple[list[Device], list[str]]:
    devices, reasons = [], []
    for name in names:
        try:
            devices.append(open_device(name))
        except DeviceError as error:
            reasons.append(f"{name}: {error}")
    return devices, reasons


def _items(device: Device, n: int, seed: int) -> Iterator[object]:
    """A memory kind that is absent altogether gives one item a test; its methods say nothing more."""
    absent = {kind.name for kind in device.memory_kinds() if kind.absent}
    force = force_of(device)
    for test in tests().values():
        for direction in ONE_WAY:
            told = set()
            for subject in subjects(device, test, direction):
                name = subject.memory if subject.memory in absent else subject.name
                if name not in told:
                    told.add(name)
                    in_force = force.holds(test, subject.name, direction)
                    case = (device, test, subject.name, direction, n, seed, in_force)
                    yield pytest.param(
                        case, id=f"{test.name}-{device.driver}:{device.index}-{name}-{direction}"
                    )
