"""Driver `model`: a modelled machine for tests of the tests; opened only by name, never by default.

`model:` is clean. `model:stale` or `model:stale,torn` plants the faults of faults.py. Nothing it
reports is measured: its provenance is "modelled" and its clock is virtual.
"""

from __future__ import annotations

from umsh.backends.model.device import ModelDevice
from umsh.backends.model.faults import parse_faults

__all__ = ["ModelDevice", "open_device"]


def open_device(which: int | str) -> ModelDevice:
    """A fresh device with the planted faults of "a,b"; 0 and "" are clean. DeviceError for an unknown one."""
    return ModelDevice(parse_faults("" if which == 0 else str(which)))
