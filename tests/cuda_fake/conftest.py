"""The fake driver as a fixture; these suites run in a child process that loads it as libcuda.so.1."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from umsh.backends.cuda import program
from umsh.backends.cuda.calls import initialise
from umsh.backends.cuda.device import CudaDevice

_spec = importlib.util.spec_from_file_location("cuda_machines", Path(__file__).with_name("machines.py"))
assert _spec is not None
assert _spec.loader is not None
machines = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(machines)


class Fake:
    """What a test sets and asks of the fake driver."""

    def __init__(self) -> None:
        self.lib: Any = ctypes.CDLL("libcuda.so.1")
        self.lib.fake_set_free_bytes.argtypes = [ctypes.c_size_t]
        self.lib.fake_live.argtypes = [ctypes.c_char]
        self.lib.fake_reset()

    def machine(self, name: str) -> None:
        for attribute, value in machines.MACHINES[name].items():
            self.lib.fake_set_attribute(machines.NUMBERS[attribute], value)

    def fail(self, function: str, code: int, nth: int = 1) -> None:
        """The nth next call of that function gives this CUresult code."""
        self.lib.fake_fail(function.encode(), nth, code)

    def calls(self, function: str) -> int:
        return int(self.lib.fake_calls(function.encode()))

    def live(self) -> dict[str, int]:
        """How many allocations and registrations are alive, by kind."""
        gc.collect()
        kinds = {"host": b"h", "device": b"d", "managed": b"m", "registered": b"r", "reserved": b"v"}
        return {name: int(self.lib.fake_live(code)) for name, code in kinds.items()}


@pytest.fixture
def fake() -> Iterator[Fake]:
    driver = Fake()
    yield driver
    driver.lib.fake_reset()


@pytest.fixture
def opened(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], CudaDevice]:
    """Open a device of the named machine. Nothing is compiled: no kernel runs on the fake."""
    monkeypatch.setattr(program, "compiled", lambda path, capability: b"image")

    def open_machine(name: str) -> CudaDevice:
        fake.machine(name)
        initialise()
        return CudaDevice(0)

    return open_machine
