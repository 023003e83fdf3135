"""The description of a modelled machine: one TOML file, each figure with its unit, mark and source."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from umsh.errors import DeviceError
from umsh.mechanism import PAGES, READ_METHODS, WRITE_METHODS, Coherence, MemoryKind

FOLDER = Path(__file__).parents[1] / "machines"
Mark = Literal["measured", "vendor", "derived", "proxy", "paper", "fitted", "assumed"]
Policy = Literal["WB", "WC", "UC"]

# section.figure -> unit. Every machine has every one of them and no other; 0 says "has none".
FIGURES: Mapping[str, str] = {
    "cpu.l1_latency": "ns", "cpu.l2_latency": "ns", "cpu.l3_latency": "ns", "cpu.dram_latency": "ns",
    "cpu.cache_size": "MiB", "cpu.read_bandwidth": "GB/s", "cpu.write_bandwidth": "GB/s",
    "cpu.bypass_bandwidth": "GB/s", "cpu.uncached_latency": "ns", "cpu.flush_line": "ns",
    "cpu.invalidate_line": "ns", "cpu.atomic_latency": "ns", "cpu.tlb_reach_4k": "MiB",
    "cpu.tlb_miss_latency": "ns",
    "gpu.l1_latency": "ns", "gpu.l2_latency": "ns", "gpu.dram_latency": "ns", "gpu.snoop_latency": "ns",
    "gpu.cache_size": "MiB", "gpu.read_bandwidth": "GB/s", "gpu.write_bandwidth": "GB/s",
    "gpu.coherent_write_traffic": "x", "gpu.coherent_read_loss": "%", "gpu.coherent_write_loss": "%",
    "gpu.threads": "count", "gpu.block_threads": "count", "gpu.launch_latency": "us",
    "gpu.poll_service": "ns", "gpu.block_barrier": "ns", "gpu.grid_barrier": "ns", "gpu.tlb_reach_4k": "MiB",
    "gpu.tlb_miss_latency": "ns",
    "memory.side_cache_size": "MiB", "memory.side_cache_latency": "ns", "memory.peak_bandwidth": "GB/s",
    "bind.fixed": "us", "bind.page_4k": "us", "bind.page_2m": "us",
}  # fmt: skip
RISING = (
    ("cpu.l1_latency", "cpu.l2_latency", "cpu.l3_latency", "cpu.dram_latency"),
    ("gpu.l1_latency", "gpu.l2_latency", "gpu.dram_latency"),
    ("bind.page_4k", "bind.page_2m"),
)
WITHIN_PEAK = ("cpu.read_bandwidth", "cpu.write_bandwidth", "gpu.read_bandwidth", "gpu.write_bandwidth")
AT_LEAST_ONE = ("gpu.coherent_write_traffic", "gpu.threads", "gpu.block_threads")
MAY_BE_ZERO = (
    "memory.side_cache_size", "memory.side_cache_latency", "gpu.coherent_read_loss",
    "gpu.coherent_write_loss", "cpu.invalidate_line",
)  # fmt: skip


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One number of a machine. range: what an assumed one may be, for the sensitivity run."""

    value: float
    unit: str
    mark: Mark
    source: str
    range: tuple[float, float] | None = None


class MemoryText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of memory of the machine. reach: how software gets it; source: where that is written."""

    name: str
    pages: tuple[str, ...]
    cpu: Policy
    gpu: Policy
    coherence: Coherence
    documented: bool
    inside: bool
    reach: Literal["public", "debug key", "kernel patch"]
    control: str
    source: str


class Methods(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The methods of one agent, and why the others are absent."""

    has: tuple[str, ...]
    absent: dict[str, str]
    source: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: int
    platform: str
    driver: str
    prose: str
    order: Literal["tso", "weak"]
    coherence: Coherence
    coherence_source: str
    cpu: dict[str, Figure]
    gpu: dict[str, Figure]
    memory: dict[str, Figure]
    bind: dict[str, Figure]
    cpu_methods: Methods
    gpu_methods: Methods
    kinds: list[MemoryText]


@dataclass(frozen=True)
class Machine:
    """A described machine. figures: "section.name" -> Figure, all of FIGURES."""

    platform: str
    driver: str
    prose: str
    weak_cpu: bool
    coherence: Coherence
    figures: Mapping[str, Figure]
    methods: Mapping[str, Methods]
    kinds: tuple[MemoryText, ...]

    def __getitem__(self, name: str) -> float:
        """The number of a figure, in its own unit."""
        return self.figures[name].value

    def kind(self, name: str) -> MemoryText:
        return next(kind for kind in self.kinds if kind.name == name)

    def assumed(self) -> tuple[str, ...]:
        """The figures without a source."""
        return tuple(name for name, figure in self.figures.items() if figure.mark == "assumed")

    def vary(self, name: str, value: float) -> Machine:
        """The same machine with one figure changed: the sensitivity run.

        bind.page_2m is fitted as a multiple of bind.page_4k and moves with it.
        """
        new = {name: value}
        if name == "bind.page_4k":
            new["bind.page_2m"] = self["bind.page_2m"] * value / self[name]
        changed = {
            key: msgspec.structs.replace(self.figures[key], value=number) for key, number in new.items()
        }
        return replace(self, figures={**self.figures, **changed})


def described() -> tuple[str, ...]:
    """Every machine with a description."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(platform: str, folder: Path = FOLDER) -> Machine:
    """The machine of that name; DeviceError for one without description, or with a bad one."""
    path = folder / f"{platform}.toml"
    if not path.is_file():
        raise DeviceError(
            f"No machine {platform!r} is described.", "No device was opened.",
            f"Use one of {', '.join(described())}.",
        )  # fmt: skip
    return parse(path.read_text(encoding="utf-8"), path.name)


def parse(text: str, name: str) -> Machine:
    """The machine a description stands for; DeviceError naming the first thing wrong with it."""
    toml = _toml()
    try:
        found = msgspec.convert(toml.loads(text), _File)
    except (msgspec.ValidationError, toml.TOMLDecodeError) as error:
        _refuse(name, str(error))
    figures = {
        f"{section}.{key}": figure
        for section in ("cpu", "gpu", "memory", "bind")
        for key, figure in getattr(found, section).items()
    }
    _check_figures(name, figures)
    _check_kinds(name, found)
    return Machine(
        found.platform, found.driver, found.prose, found.order == "weak", found.coherence, figures,
        {"cpu": found.cpu_methods, "gpu": found.gpu_methods}, tuple(found.kinds),
    )  # fmt: skip


def memory_kind(text: MemoryText) -> MemoryKind:
    """The driver's word for a described kind of memory."""
    note = "" if text.reach == "public" else f"needs a {text.reach} on a real machine"
    return MemoryKind(
        text.name, text.pages, text.cpu, text.gpu, text.coherence, text.documented, text.inside, note=note
    )


def _check_figures(name: str, figures: Mapping[str, Figure]) -> None:
    if missing := sorted(set(FIGURES) - set(figures)):
        _refuse(name, f"the figures {', '.join(missing)} are missing")
    if unknown := sorted(set(figures) - set(FIGURES)):
        _refuse(name, f"the figures {', '.join(unknown)} are not known")
    for key, figure in figures.items():
        if figure.unit != FIGURES[key]:
            _refuse(name, f"{key} is in {figure.unit!r}, not in {FIGURES[key]!r}")
        if not figure.value >= 0 or figure.value == float("inf"):
            _refuse(name, f"{key} is {figure.value}, not a number from 0 upwards")
        if figure.value == 0 and key not in MAY_BE_ZERO:
            _refuse(name, f"{key} is 0")
        if not figure.source.strip():
            _refuse(name, f"{key} has no source")
        if (figure.mark == "assumed") != (figure.range is not None):
            _refuse(name, f"{key} is {figure.mark}: a range belongs to assumed figures, and to them alone")
        if figure.range is not None and not figure.range[0] <= figure.value <= figure.range[1]:
            _refuse(name, f"{key} is {figure.value}, outside its range {figure.range}")
    for chain in RISING:
        for low, high in pairwise(chain):
            if figures[low].value > figures[high].value:
                _refuse(name, f"{low} {figures[low].value} is above {high} {figures[high].value}")
    peak = figures["memory.peak_bandwidth"].value
    if above := [key for key in WITHIN_PEAK if key.startswith("gpu") and figures[key].value > peak]:
        _refuse(name, f"{above[0]} is above memory.peak_bandwidth, {peak}")
    if low_one := [key for key in AT_LEAST_ONE if figures[key].value < 1]:
        _refuse(name, f"{low_one[0]} is below 1")
    if (figures["memory.side_cache_size"].value > 0) != (figures["memory.side_cache_latency"].value > 0):
        _refuse(name, "memory.side_cache_size and memory.side_cache_latency are both there or both 0")


def _check_kinds(name: str, found: _File) -> None:
    if found.format != 1:
        _refuse(name, f"format {found.format} is not 1")
    names = [kind.name for kind in found.kinds]
    if not names or len(set(names)) != len(names):
        _refuse(name, f"kinds must have names of their own, not {names}")
    reach = ("none", "one-way", "two-way")
    for kind in found.kinds:
        if reach.index(kind.coherence) > reach.index(found.coherence):
            _refuse(name, f"{kind.name} is {kind.coherence} coherent on a machine that is {found.coherence}")
        if bad := [pages for pages in kind.pages if pages not in PAGES]:
            _refuse(name, f"{kind.name} has pages {bad[0]!r}")
        if kind.documented and kind.reach != "public":
            _refuse(name, f"{kind.name} is documented but reached by a {kind.reach}")
    for agent, methods in (("cpu", found.cpu_methods), ("gpu", found.gpu_methods)):
        named = [*methods.has, *methods.absent]
        if sorted(named) != sorted({*WRITE_METHODS, *READ_METHODS}):
            _refuse(name, f"{agent}_methods must name every method once, not {sorted(named)}")


def _refuse(name: str, what: str) -> NoReturn:
    raise DeviceError(
        f"The machine description {name} is wrong: {what}.", "No device was opened.", "Correct the file."
    )


def _toml() -> Any:
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    return toml
