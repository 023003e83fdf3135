"""What every case study shares: ways side by side, interleaved runs, a result file, a picture."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import umsh

ROOT = Path(__file__).parent
REPEATS, REPEATS_QUICK = 10, 3
SEED = 1  # of the order of ways
Samples = dict[str, dict[str, list[float]]]  # way -> metric -> one number a run


@dataclass(frozen=True)
class Study:
    """One case study. run(quick) measures and returns a Result; published: what the paper reports."""

    name: str
    prose: str
    baseline: str
    ours: str
    metric: str
    published: str
    run: Callable[[bool], Result]


@dataclass
class Result:
    """What ran: raw samples of every way, and where.

    verified: every run gave the baseline's result. baseline, metric: where others than the study's are right.
    """

    study: str
    command: str
    parameters: Mapping[str, Any]
    units: Mapping[str, str]
    samples: Samples
    verified: bool
    notes: list[str] = field(default_factory=list)
    provenance: str = "measured"
    machine: Mapping[str, Any] = field(default_factory=dict)
    baseline: str = ""
    metric: str = ""

    def median(self, way: str, metric: str) -> float:
        return statistics.median(self.samples[way][metric])

    def ratio(self, way: str, baseline: str, metric: str) -> float:
        """Median of `way` over the baseline's: below 1 is less."""
        return self.median(way, metric) / self.median(baseline, metric)


def interleave(
    ways: Mapping[str, Callable[[], Mapping[str, float]]], repeats: int, warm_up: int = 1
) -> Samples:
    """Run every way `repeats` times, in a new random order each round, after `warm_up` rounds."""
    order, chance = list(ways), random.Random(SEED)
    samples: Samples = {way: {} for way in ways}
    for number in range(warm_up + repeats):
        chance.shuffle(order)
        for way in order:
            for metric, value in ways[way]().items():
                if number >= warm_up:
                    samples[way].setdefault(metric, []).append(value)
    return samples


def machine(device: Any) -> dict[str, Any]:
    """The machine and device that ran, without its name in any network."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    facts = device.facts()
    choice = umsh.explain().to_dict()["facts"]
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "device": device.name,
        "driver": device.driver,
        "driver_version": str(facts.get("driver_version", "")),
        "choice": choice["choice"].partition(":")[0],  # its origin; the path is nobody's business
        "profile": choice.get("profile", ""),
        "load_average": os.getloadavg()[0],
    }


def save(result: Result, folder: Path, name: str) -> Path:
    """Write the result file `name` of a study's folder."""
    path = folder / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n")
    return path


def load(path: Path) -> Result:
    return Result(**json.loads(path.read_text()))


def picture(result: Result, metric: str, path: Path, title: str, order: Sequence[str]) -> None:
    """Every sample as a dot and the median as a bar, one row a way."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ways = [way for way in order if metric in result.samples.get(way, {})]
    figure, axes = pyplot.subplots(figsize=(7, 0.5 * len(ways) + 1.2), layout="constrained")
    axes.barh(ways, [result.median(way, metric) for way in ways], color="#c8d6e5")
    for row, way in enumerate(ways):
        values = result.samples[way][metric]
        axes.plot(values, [row] * len(values), ".", color="#2c3e50", alpha=0.6)
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric} ({result.units[metric]}), {result.provenance}; dots are runs, bars medians")
    axes.set_title(title, fontsize="medium")
    figure.savefig(path, dpi=110, bbox_inches="tight")  # a long label may be wider than the axes
    pyplot.close(figure)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []  # not Linux: the machine's own word is used
