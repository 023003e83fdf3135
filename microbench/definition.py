"""What a benchmark is: key, prose, units, parameters, candidates and one verified run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from umsh.backends.driver import Device, Memory

if TYPE_CHECKING:
    from umsh.native import Mapping as Pages

Scalar = str | int | float | bool
Unit = Literal["ns", "B/s", "B", "count"]
Parameters = Mapping[str, Scalar]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RUN_TIMEOUT_S = 60.0  # one piece of an agent's work; each also has its own bound


@dataclass(frozen=True, slots=True)
class Sample:
    """One verified run: metric -> value in the benchmark's unit, and whether the data was right."""

    values: Mapping[str, float]
    verified: bool
    note: str = ""


class Rig:
    """A device with the memory and files that the runs of one group share; frees them on exit.

    scratch: folder for large files, on a disk rather than in memory; None takes the system's.
    """

    def __init__(self, device: Device, seed: int = 1, scratch: Path | None = None) -> None:
        self.device = device
        self._memory: dict[tuple[str, str, int], Memory] = {}
        self._seed = seed
        self._source: Pages | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="umsh-bench-", dir=scratch)

    @property
    def folder(self) -> Path:
        """A fresh folder that lives as long as this rig."""
        return Path(self._folder.name)

    def memory(self, kind: str, pages: str, nbytes: int) -> Memory:
        """Memory of this kind and size, allocated at the first request."""
        key = (kind, pages, nbytes)
        if key not in self._memory:
            self._memory[key] = self.device.allocate(kind, nbytes, pages)
        return self._memory[key]

    def source(self, nbytes: int) -> Pages:
        """CPU memory of the caller's own, mapped at the first request; real machines only."""
        from umsh.native import map_pages

        if self._source is None or self._source.nbytes != nbytes:
            self._source = map_pages(nbytes, "thp")
        return self._source

    def next_seed(self) -> int:
        """A pattern seed that no earlier run of this rig used, so that stale data never verifies."""
        self._seed = (self._seed * 1664525 + 1013904223) % (1 << 32)
        return self._seed

    def clock_ns(self) -> int:
        """The device's clock: monotonic on real devices, virtual on modelled ones."""
        return self.device.clock_ns()

    def close(self) -> None:
        """Free what was allocated. Idempotent."""
        for memory in self._memory.values():
            memory.free()
        self._memory.clear()
        if self._source is not None:
            self._source.close()
            self._source = None
        self._folder.cleanup()

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def everywhere(device: Device) -> str:
    """Applies to every device."""
    return ""


def real_only(device: Device) -> str:
    """The missing fact of a modelled device for what only a real machine can show."""
    return "" if device.provenance == "measured" else "a modelled device has no operating system to measure"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark.

    key: its name in result files. prose: what a reader should know. direction: "cpu->gpu",
    "gpu->cpu", or "" where it has none. units: metric -> unit; less is better.
    parameters(device, quick): the points to measure at. subjects(device, parameters): candidate ->
    missing fact, "" where it runs. run(rig, subject, parameters): one verified run.
    applies(device): the missing fact of a device on which nothing of it runs, else "".
    baselines: how the names of candidates that others are compared with begin. ranks: the generator ranks its
    candidates, so one of them is measured twice to see the machine's noise.
    """

    key: str
    prose: str
    units: Mapping[str, Unit]
    parameters: Callable[[Device, bool], Sequence[Parameters]]
    subjects: Callable[[Device, Parameters], Mapping[str, str]]
    run: Callable[[Rig, str, Parameters], Sample]
    direction: str = ""
    applies: Callable[[Device], str] = everywhere
    baselines: tuple[str, ...] = ()
    ranks: bool = False
