"""Measuring one group: all candidates at one set of parameters, interleaved, warmed up, raw samples kept."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from umsh.errors import FileError, OutOfMemory, UnsupportedError
from umsh.microbench.definition import Benchmark, Parameters, Rig, Sample
from umsh.profile import SampleRecord


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time one group may take.

    budget_s: rounds are added until it is spent. rounds_min: at least so many, for the U test.
    round_max_s: a group whose single round takes longer is waived, with the time it would need.
    """

    budget_s: float
    rounds_min: int
    rounds_max: int
    round_max_s: float


QUICK = Effort(budget_s=0.6, rounds_min=5, rounds_max=11, round_max_s=4.0)
FULL = Effort(budget_s=4.0, rounds_min=7, rounds_max=31, round_max_s=24.0)


def waived(benchmark: Benchmark, parameters: Parameters, subject: str, missing: str) -> SampleRecord:
    """A row without samples that says which fact is missing."""
    return _record(benchmark, parameters, subject, next(iter(benchmark.units)), [], f"WAIVED: {missing}")


def measure(
    rig: Rig,
    benchmark: Benchmark,
    parameters: Parameters,
    effort: Effort,
    seed: int,
    kept: Collection[str] | None = None,
) -> list[SampleRecord]:
    """Records of every candidate at these parameters, waived ones included.

    kept: the candidates whose verdict allows timing; None times all. Baselines are always timed.
    """
    if missing := benchmark.applies(rig.device):
        return [waived(benchmark, parameters, "all", missing)]
    live: list[str] = []
    absent: dict[str, str] = {}
    for subject, missing in benchmark.subjects(rig.device, parameters).items():
        if not missing and kept is not None and subject not in kept and not is_baseline(benchmark, subject):
            missing = "its verdict is not kept"
        if missing:
            absent[subject] = missing
        else:
            live.append(subject)
    records = _interleaved(rig, benchmark, parameters, effort, seed, live, absent)
    return records + _waived_together(benchmark, parameters, absent)


def is_baseline(benchmark: Benchmark, subject: str) -> bool:
    """Whether other candidates are compared with this one."""
    return bool(benchmark.baselines) and subject.startswith(benchmark.baselines)


def _interleaved(
    rig: Rig,
    benchmark: Benchmark,
    parameters: Parameters,
    effort: Effort,
    seed: int,
    live: Sequence[str],
    absent: dict[str, str],
) -> list[SampleRecord]:
    """Records of the live candidates; those that turn out not to fit this machine are added to absent."""
    # The first candidate runs twice a round where candidates are ranked: twins that differ show noise.
    places = [(subject, False) for subject in live]
    if benchmark.ranks and len(live) > 1:
        places.append((live[0], True))
    # The effort is of this machine's time, also where the device's own clock is a virtual one.
    start = time.monotonic()
    for place in list(places):  # warm-up, not kept; what does not fit this machine shows here
        try:
            benchmark.run(rig, place[0], parameters)
        except (OutOfMemory, UnsupportedError, FileError) as error:
            absent[place[0]] = error.state
            places.remove(place)
    round_s = max(1e-9, time.monotonic() - start)
    if round_s > effort.round_max_s:
        reason = f"one round takes {round_s:.1f} s, more than this probe's {effort.round_max_s:g} s"
        absent.update(dict.fromkeys(live, reason))
        return []
    rounds = min(effort.rounds_max, max(effort.rounds_min, int(effort.budget_s / round_s)))
    taken: dict[tuple[str, bool], list[Sample]] = {place: [] for place in places}
    order = random.Random(f"{seed} {benchmark.key} {sorted(parameters.items())}")
    with _no_collection():
        for _ in range(rounds):
            order.shuffle(places)
            for place in places:
                taken[place].append(benchmark.run(rig, place[0], parameters))
    return [r for place, samples in taken.items() for r in _records(benchmark, parameters, place, samples)]


def _waived_together(
    benchmark: Benchmark, parameters: Parameters, absent: Mapping[str, str]
) -> list[SampleRecord]:
    """One waived row for each missing fact, named after the first candidate that lacks it."""
    by_fact: dict[str, list[str]] = {}
    for subject, missing in absent.items():
        by_fact.setdefault(missing, []).append(subject)
    records = []
    for missing, names in by_fact.items():
        others = f" (and {len(names) - 1} others)" if len(names) > 1 else ""
        records.append(waived(benchmark, parameters, names[0], missing + others))
    return records


def _records(
    benchmark: Benchmark, parameters: Parameters, place: tuple[str, bool], samples: Sequence[Sample]
) -> Iterator[SampleRecord]:
    subject, twin = place
    verified = all(sample.verified for sample in samples)
    notes = sorted({sample.note for sample in samples if sample.note})
    for metric, _ in benchmark.units.items():
        values = [round(sample.values[metric], 3) for sample in samples if metric in sample.values]
        if values:
            shown = {**parameters, "twin": True} if twin else parameters
            yield _record(benchmark, shown, subject, metric, values, "; ".join(notes), verified)


def _record(
    benchmark: Benchmark,
    parameters: Parameters,
    subject: str,
    metric: str,
    samples: list[float],
    note: str,
    verified: bool = False,
) -> SampleRecord:
    return SampleRecord(
        bench=benchmark.key,
        subject=subject,
        baseline_of=benchmark.key if is_baseline(benchmark, subject) else "",
        direction=benchmark.direction,
        parameters={**parameters, "metric": metric},
        unit=benchmark.units[metric],
        samples=samples,
        verified=verified,
        note=note,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of timed runs."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
