"""One modelled device: functional memory, two agents, virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from umsh.backends.driver import Device, Fact, Memory
from umsh.backends.model import cost
from umsh.backends.model.agent import ALGORITHMS, ModelAgent
from umsh.backends.model.description import Machine, MemoryText, memory_kind
from umsh.backends.model.faults import FAULTS, bits
from umsh.backends.model.memory import ModelMemory
from umsh.backends.model.schedule import ModelStream, Schedule
from umsh.errors import DeviceError, NeedError, OutOfMemory, UnsupportedError
from umsh.machine import Platform
from umsh.mechanism import MemoryKind
from umsh.native import ffi

TOTAL_NBYTES = 4 << 30
PLAIN = "plain"
WORDS = MemoryText(
    name="words", pages=("driver",), cpu="UC", gpu="UC", coherence="none", documented=True, inside=True,
    reach="public", control="the harness's own rendezvous words", source="a part of the model",
)  # fmt: skip


class ModelDevice(Device):
    """A described machine and the planted faults. Words of the harness have a kind of their own."""

    driver = "model"
    provenance = "modelled"
    index = 0

    def __init__(self, machine: Machine, faults: frozenset[str]) -> None:
        self.machine = machine
        self.faults = faults
        described = () if machine.platform == PLAIN else (machine.platform,)
        self.name = f"model:{','.join((*described, *sorted(faults)))}"
        self._kinds = machine.kinds if machine.platform == PLAIN else (*machine.kinds, WORDS)
        self._schedule = Schedule(cost.events(machine), bits(faults), machine.weak_cpu)
        self._used = 0
        self.cpu = ModelAgent("cpu", machine, self._schedule)
        self.gpu = ModelAgent("gpu", machine, self._schedule)

    def facts(self) -> Mapping[str, Fact]:
        planted = {f"fault_{name}": name in self.faults for name in FAULTS}
        about = {f"figure {name}": figure.value for name, figure in self.machine.figures.items()}
        return {
            "device": self.name, "driver_version": "1", "modelled_platform": self.machine.platform,
            "coherence": self.machine.coherence, **about, **planted,
        }  # fmt: skip

    def platform(self) -> tuple[Platform, str] | None:
        if self.machine.platform == PLAIN:
            return None
        documented = [kind for kind in self.machine.kinds if kind.documented]
        return Platform(
            name=self.machine.platform, driver=self.driver, matches=lambda facts: "",
            safe_mechanisms=tuple(f"{kind.name}.4k:WA/RA" for kind in documented),
            safe_memory=(*(kind.name for kind in documented if kind.inside), WORDS.name),
            safe_lock="peterson", safe_wait="block", source=f"backends/machines/{self.machine.platform}.toml",
        ), "the description of a modelled machine"  # fmt: skip

    def memory_kinds(self) -> tuple[MemoryKind, ...]:
        return tuple(memory_kind(kind) for kind in self._kinds)

    def allocate(self, kind: str, nbytes: int, pages: str, shared: bool = False) -> Memory:
        found = self._kind(kind)
        if shared or pages not in found.pages:
            raise UnsupportedError(
                f"{pages!r} pages, shared={shared} were asked for; modelled memory is of one process.",
                "Nothing was allocated.", f"Use shared=False and pages of {', '.join(found.pages)}.",
            )  # fmt: skip
        if nbytes < 1:
            raise NeedError(
                f"{nbytes} bytes were asked for.", "Nothing was allocated.", "Ask for at least one."
            )
        if nbytes > TOTAL_NBYTES - self._used:
            raise OutOfMemory(
                f"{nbytes} bytes were asked for; {TOTAL_NBYTES - self._used} of {TOTAL_NBYTES} are left.",
                "Nothing was allocated.", "Ask for less.",
            )  # fmt: skip
        split = "thp_splits" in self.faults and pages == "thp"
        self._used += nbytes
        self._schedule.clock_ns += int(cost.bind_ns(self.machine, "4k" if split else pages, nbytes))
        return ModelMemory(found, pages, nbytes, split=split, freed=self._free)

    def adopt(self, kind: str, address: int, nbytes: int, keep: object) -> Memory:
        home = np.frombuffer(ffi.buffer(ffi.cast("void *", address), nbytes), np.uint8)
        found = self._kind(kind)
        memory = ModelMemory(found, found.pages[0], nbytes, home)
        memory.keep = keep
        return memory

    def attach(self, handle: Mapping[str, Any]) -> Memory:
        raise DeviceError("Modelled memory is of one process.", "Nothing was mapped.", "Use a real driver.")

    def stream(self, native: object | None = None) -> ModelStream:
        return ModelStream(self._schedule, native)

    def memory_info(self) -> tuple[int, int, str]:
        return TOTAL_NBYTES - self._used, TOTAL_NBYTES, "model"

    def clock_ns(self) -> int:
        return self._schedule.clock_ns

    def lock_algorithms(self) -> Mapping[str, str]:
        return dict.fromkeys(ALGORITHMS, "")

    def _free(self, nbytes: int) -> None:
        self._used -= nbytes

    def _kind(self, name: str) -> MemoryText:
        for kind in self._kinds:
            if kind.name == name:
                return kind
        raise UnsupportedError(
            f"The model has no memory kind {name!r}.", "Nothing was allocated.",
            f"Use one of {', '.join(kind.name for kind in self._kinds)}.",
        )  # fmt: skip
