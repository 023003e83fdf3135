"""One modelled device: functional memory, two agents, virtual time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from umsh.backends.driver import Device, Fact, Memory
from umsh.backends.model.agent import ModelAgent
from umsh.backends.model.faults import FAULTS
from umsh.backends.model.locks import ALGORITHMS
from umsh.backends.model.memory import KINDS, ModelMemory
from umsh.backends.model.port import Port
from umsh.backends.model.schedule import ModelStream, Schedule
from umsh.errors import DeviceError, NeedError, OutOfMemory, UnsupportedError
from umsh.mechanism import MemoryKind
from umsh.native import ffi

TOTAL_NBYTES = 1 << 30


class ModelDevice(Device):
    """A machine with two kinds of memory, "coherent" and "cached", and the planted faults."""

    driver = "model"
    provenance = "modelled"
    index = 0

    def __init__(self, faults: frozenset[str]) -> None:
        self.faults = faults
        self.name = f"model:{','.join(sorted(faults))}"
        chance = random.Random(0)
        cpu, gpu = Port("cpu", faults, chance), Port("gpu", faults, chance)
        cpu.other, gpu.other = gpu, cpu
        self._schedule = Schedule((cpu, gpu), chance)
        self.cpu = ModelAgent(cpu, self._schedule)
        self.gpu = ModelAgent(gpu, self._schedule)

    def facts(self) -> Mapping[str, Fact]:
        planted = {f"fault_{name}": name in self.faults for name in FAULTS}
        return {"device": self.name, "driver_version": "1", **planted}

    def memory_kinds(self) -> tuple[MemoryKind, ...]:
        return KINDS

    def allocate(self, kind: str, nbytes: int, pages: str, shared: bool = False) -> Memory:
        found = self._kind(kind)
        if shared or pages not in found.pages:
            raise UnsupportedError(
                f"{pages!r} pages, shared={shared} were asked for; modelled memory is of one process.",
                "Nothing was allocated.", "Use pages='driver' and shared=False.",
            )  # fmt: skip
        if nbytes < 1:
            raise NeedError(
                f"{nbytes} bytes were asked for.", "Nothing was allocated.", "Ask for at least one."
            )
        if nbytes > TOTAL_NBYTES:
            raise OutOfMemory(
                f"{nbytes} bytes were asked for; the model has {TOTAL_NBYTES}.", "Nothing was allocated.",
                "Ask for less.",
            )  # fmt: skip
        return ModelMemory(found, nbytes)

    def adopt(self, kind: str, address: int, nbytes: int, keep: object) -> Memory:
        home = np.frombuffer(ffi.buffer(ffi.cast("void *", address), nbytes), np.uint8)
        memory = ModelMemory(self._kind(kind), nbytes, home)
        memory.keep = keep
        return memory

    def attach(self, handle: Mapping[str, Any]) -> Memory:
        raise DeviceError("Modelled memory is of one process.", "Nothing was mapped.", "Use a real driver.")

    def stream(self, native: object | None = None) -> ModelStream:
        return ModelStream(self._schedule, native)

    def memory_info(self) -> tuple[int, int, str]:
        return TOTAL_NBYTES, TOTAL_NBYTES, "model"

    def clock_ns(self) -> int:
        return self._schedule.clock_ns

    def lock_algorithms(self) -> Mapping[str, str]:
        return dict.fromkeys(ALGORITHMS, "")

    def _kind(self, name: str) -> MemoryKind:
        for kind in KINDS:
            if kind.name == name:
                return kind
        raise UnsupportedError(
            f"The model has no memory kind {name!r}.", "Nothing was allocated.",
            f"Use one of {', '.join(kind.name for kind in KINDS)}.",
        )  # fmt: skip
