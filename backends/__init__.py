"""Drivers and platforms, found by listing this folder: a file is a platform, a folder a driver."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from umsh.backends.driver import Device, Fact
from umsh.errors import DeviceError
from umsh.machine import Platform

# A vendor's own driver before the general one; drivers not named here open only by name.
DEFAULT_DRIVERS = ("cuda", "opencl")
HELPERS = ("cpu_agent", "delegate", "driver", "intel", "pages")  # no platforms


def drivers() -> tuple[str, ...]:
    """Every driver of this install, the default ones first in the order they are tried."""
    found = {module.name for module in pkgutil.iter_modules(__path__) if module.ispkg}
    ordered = [name for name in DEFAULT_DRIVERS if name in found]
    return (*ordered, *sorted(found.difference(ordered)))


def platforms() -> tuple[Platform, ...]:
    """Every platform of this install: the `PLATFORM` of each file in this folder, by name."""
    found: list[Platform] = []
    for module in pkgutil.iter_modules(__path__):
        if not module.ispkg and module.name not in HELPERS:
            found.append(importlib.import_module(f"{__name__}.{module.name}").PLATFORM)
    return tuple(sorted(found, key=lambda platform: platform.name))


def open_device(device: int | str = 0) -> Device:
    """Open a device: an int counts within the first default driver that opens; a str is "driver:which".

    `which` is a driver's own number or, for the model, the names of its planted faults. A device
    opened before in this process is given again.

    Raises DeviceError naming every candidate's reason when none opens.
    """
    if isinstance(device, str):
        name, _, which = device.partition(":")
        if name not in drivers():
            raise DeviceError(
                f"Device {device!r} names no driver of this install.",
                "No device was opened.",
                f"Use one of {', '.join(drivers())}, such as 'opencl:0'.",
            )
        return _open(name, int(which) if which.isdigit() else which or 0)
    reasons: dict[str, str] = {}
    for name in drivers():
        if name in DEFAULT_DRIVERS:
            try:
                return _open(name, device)
            except DeviceError as error:
                reasons[name] = str(error)
    told = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
    raise DeviceError(
        f"No device {device} could be opened:\n{told}",
        "Nothing can be shared with a GPU here.",
        "Cure one of the reasons above; `pip install 'pyopencl[pocl]'` gives a CPU device on x86-64.",
    )


def platform_of(device: Device) -> tuple[Platform, str] | None:
    """The platform an opened device is, and the evidence; None when no platform file knows it."""
    from umsh.machine import recognise

    return device.platform() or recognise(platforms(), device.driver, facts_of(device))


def facts_of(device: Device) -> Mapping[str, Fact]:
    """Facts of the device and of the machine around it, in one mapping."""
    from umsh.machine import machine_facts

    return {**machine_facts(), **device.facts()}


def _open(driver: str, which: int | str) -> Device:
    module: Any = importlib.import_module(f"{__name__}.{driver}")
    opened: Device = module.open_device(which)
    return opened
