"""Data rows of a choice: for each need and size range, the fastest mechanism among the kept ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from umsh.choice import DataRow
from umsh.mechanism import Mechanism
from umsh.need import Boundary, Direction, Source
from umsh.probe import stats
from umsh.probe.evidence import directions_of, kept_mechanisms, samples_by, standing
from umsh.probe.ranking import Pick, against, pick, ranges
from umsh.profile import Profile

# Data from the network lands by a CPU copy, as data the CPU makes; a file can land by DMA.
NEEDS: tuple[tuple[Direction, tuple[Source, ...]], ...] = (
    ("cpu->gpu", ("cpu", "network", "gpu")),
    ("cpu->gpu", ("file",)),
    ("gpu->cpu", ("gpu", "cpu", "file", "network")),
    ("both", ("cpu", "gpu", "file", "network")),
)
BENCH = {"cpu->gpu": "cpu_to_gpu", "gpu->cpu": "gpu_to_cpu"}
BOUNDARIES: tuple[Boundary, ...] = ("kernel", "inside")
PASSES_RANKED = (1, 2, 4, 8, 16)  # those between two measured ones are interpolated sample by sample
Samples = dict[int, dict[str, list[float]]]


def data_rows(profile: Profile) -> list[DataRow]:
    """Rows of every need that at least one kept and timed mechanism meets."""
    bind = samples_by(profile, "bind", "bind", "nbytes")
    rows: list[DataRow] = []
    for direction, sources in NEEDS:
        for boundary in BOUNDARIES:
            kept = kept_mechanisms(profile, direction, boundary)
            if boundary == "inside":  # a copy is a hand-over between kernels
                kept = [m for m in kept if m.write != "copy"]
            before: list[DataRow] = []
            ready = _times(profile, direction, sources, "ready")
            for passes, times in _times(profile, direction, sources, "time").items():
                picks = _picks(kept, times, bind, ready.get(passes, {}) if passes > 1 else {})
                level = _rows(profile, direction, sources, boundary, picks, passes)
                if [_what(row) for row in level] != [_what(row) for row in before]:
                    rows += level
                    before = level
    return rows


def _what(row: DataRow) -> tuple[str, int, int, str]:
    return row.source, row.min_bytes, row.max_bytes, row.mechanism


def _times(profile: Profile, direction: str, sources: Sequence[str], metric: str) -> dict[int, Samples]:
    """passes -> size -> mechanism -> samples of a metric of the benchmark that decides this need."""
    if sources == ("file",) and (times := samples_by(profile, "file_to_gpu", "time", "nbytes")):
        return {1: times}
    numbers = sorted({int(r.parameters["passes"]) for r in profile.samples if "passes" in r.parameters})
    ways = [BENCH[one] for one in directions_of(direction)]
    measured = {
        passes: _together([samples_by(profile, way, metric, "nbytes", passes=passes) for way in ways])
        for passes in numbers
    }
    return {passes: _at_passes(measured, passes) for passes in PASSES_RANKED if measured}


def _at_passes(measured: Mapping[int, Samples], passes: int) -> Samples:
    """Samples at a number of passes, linear between the measured numbers around it."""
    if passes in measured:
        return measured[passes]
    low = max((p for p in measured if p < passes), default=0)
    high = min((p for p in measured if p > passes), default=0)
    if not low or not high:
        return {}
    weight = (passes - low) / (high - low)
    return _combine(measured[low], measured[high], lambda a, b: a + (b - a) * weight)


def _together(parts: Sequence[Samples]) -> Samples:
    """Both ways of a hand-over: sums of independent samples where each part has the mechanism."""
    return reduce(lambda a, b: _combine(a, b, lambda x, y: x + y), parts)


def _combine(first: Samples, second: Samples, how: Callable[[float, float], float]) -> Samples:
    """Sample by sample, for sizes and mechanisms that both hold."""
    return {
        size: {
            name: [how(a, b) for a, b in zip(samples, second[size][name], strict=False)]
            for name, samples in named.items()
            if name in second[size]
        }
        for size, named in first.items()
        if size in second
    }


def _picks(kept: Sequence[Mechanism], times: Samples, bind: Samples, ready: Samples) -> dict[int, Pick]:
    """The winner at each size; a winner stays while nothing beats it at the next size.

    ready: for several passes, samples from the data's publication on. They decide whether to copy: the
    time of writing is the same either way, and would hide the difference. Without any, all of it decides.
    """
    picks: dict[int, Pick] = {}
    before = ""
    for size, samples in times.items():
        order = [m.name for m in kept if m.name in samples]
        judged = ready.get(size, samples)
        if order:
            won = pick(samples, _copied_or_direct(order, samples, judged), before)
            before = won.name
            picks[size] = _with_pages(won, samples, order, _nearest(bind, size), judged)
    return picks


def _copied_or_direct(
    order: Sequence[str], samples: Mapping[str, Sequence[float]], judged: Mapping[str, Sequence[float]]
) -> list[str]:
    """Those of `order` among which the winner is: the copies where the best of them wins by `judged`."""
    copies = [name for name in order if name.endswith(":copy/copy") and name in judged]
    direct = [name for name in order if name not in copies]
    if judged is samples or not copies or not direct:
        return list(order)
    own, other = (pick(samples, names).name for names in (direct, copies))
    return copies if stats.beats(judged[other], judged[own]) else direct


def _rows(
    profile: Profile,
    direction: Direction,
    sources: Sequence[Source],
    boundary: Boundary,
    picks: Mapping[int, Pick],
    passes: int,
) -> list[DataRow]:
    rows = []
    for part in ranges(picks, first=1):
        mechanism = Mechanism.parse(part.pick.name)
        evidence = _evidence(profile, mechanism, direction, boundary, part.points, part.pick.n)
        rows += [
            DataRow(
                direction=direction, source=source, boundary=boundary,
                min_bytes=part.first, max_bytes=part.last, min_passes=passes,
                mechanism=mechanism.name, next=part.pick.next, ratio=part.pick.ratio, p=part.pick.p,
                evidence=evidence,
            )
            for source in sources
        ]  # fmt: skip
    return rows


def _with_pages(
    won: Pick,
    samples: Mapping[str, Sequence[float]],
    order: Sequence[str],
    bind: Mapping[str, Sequence[float]],
    judged: Mapping[str, Sequence[float]],
) -> Pick:
    """The winner's page kind, among those whose hand-over nothing beats, by bind + one hand-over.

    judged: what the runner-up and its ratio are told of.
    """
    chosen = Mechanism.parse(won.name)
    same = [name for name in order if Mechanism.parse(name).sharing == chosen.sharing]
    costs = {
        name: [a + b for a, b in zip(samples[name], bind[where], strict=False)]
        for name in same
        if not any(stats.beats(samples[other], samples[name]) for other in order)
        and (where := f"{chosen.memory}.{Mechanism.parse(name).pages}") in bind
    }
    name = stats.simplest_unbeaten(costs, [n for n in same if n in costs]) if costs else won.name
    return against(judged, name, [other for other in order if other not in same and other in judged])


def _nearest(bind: Samples, size: int) -> Mapping[str, Sequence[float]]:
    """Bind samples of the measured size nearest to `size` by ratio; none when bind was not measured."""
    if not bind:
        return {}
    return bind[min(bind, key=lambda measured: abs(math.log(measured / size)))]


def _evidence(
    profile: Profile, mechanism: Mechanism, direction: str, boundary: str, points: Sequence[int], n: int
) -> str:
    state = standing(profile.verdicts, mechanism.sharing, boundary, directions_of(direction))
    sizes = size_text(points[0]) if len(points) == 1 else f"{size_text(points[0])}..{size_text(points[-1])}"
    return f"n {n} at {sizes}; {state.tests} tests kept, rate <= {state.bound:.1g}"


def size_text(nbytes: int) -> str:
    """A size in the largest unit that divides it: "64 KiB"."""
    for unit, text in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {text}"
    return f"{nbytes} B"
