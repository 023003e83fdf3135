"""Driver `model`: described machines that are modelled, never measured; opened only by name.

`model:lunar` is the machine of backends/machines/lunar.toml, `model:` a plain one for tests of the tests.
`model:lunar,stale` or `model:stale,torn` plants the faults of faults.py. Nothing it reports is measured: its
provenance is "modelled" and its clock is virtual.
"""

from __future__ import annotations

from pathlib import Path

from umsh.backends.model.description import described, load
from umsh.backends.model.device import ModelDevice
from umsh.backends.model.faults import parse_faults

__all__ = ["ModelDevice", "described", "open_device"]


def open_device(which: int | str) -> ModelDevice:
    """A fresh device of "machine,fault,..."; 0 and "" are plain and clean. DeviceError when unknown."""
    machine, _, faults = ("" if which == 0 else str(which)).partition(",")
    if machine in described():
        return ModelDevice(load(machine), parse_faults(faults))
    return ModelDevice(load("plain", Path(__file__).parent), parse_faults(f"{machine},{faults}"))
