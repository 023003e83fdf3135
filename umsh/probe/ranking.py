"""Ranking candidates at measured points and turning the winners into ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umsh.probe import stats


@dataclass(frozen=True, slots=True)
class Pick:
    """The winner at one point, its runner-up, the runner-up's median over the winner's, p, sample count."""

    name: str
    next: str
    ratio: float
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class Range:
    """A winner from `first` to `last` (0: without limit); the weakest of the picks it was merged from."""

    first: int
    last: int
    points: tuple[int, ...]
    pick: Pick


def pick(samples: Mapping[str, Sequence[float]], order: Sequence[str], prefer: str = "") -> Pick:
    """The simplest unbeaten candidate with the fastest of the others as runner-up; less is better."""
    name = stats.simplest_unbeaten(samples, order, prefer)
    return against(samples, name, [other for other in order if other != name])


def against(samples: Mapping[str, Sequence[float]], name: str, others: Sequence[str]) -> Pick:
    """`name` beside the fastest of `others`; without others ratio and p are 1."""
    if not others:
        return Pick(name, "", 1.0, 1.0, len(samples[name]))
    runner_up = min(others, key=lambda other: (stats.median(samples[other]), other))
    ratio = stats.median(samples[runner_up]) / max(stats.median(samples[name]), 1e-12)
    p = stats.u_test(samples[name], samples[runner_up])
    return Pick(name, runner_up, round(ratio, 3), float(f"{p:.2g}"), len(samples[name]))


def ranges(picks: Mapping[int, Pick], first: int, unlimited: bool = True) -> list[Range]:
    """Neighbouring points with one winner merged; a border lies at the power of two
    nearest to the geometric mean of its points.

    first: where the lowest range begins. unlimited: the highest range has no upper limit; else it
    ends at its last point, because nothing was measured beyond.
    """
    groups: list[list[int]] = []
    for point in sorted(picks):
        if groups and picks[groups[-1][-1]].name == picks[point].name:
            groups[-1].append(point)
        else:
            groups.append([point])
    found, begin = [], first
    for index, group in enumerate(groups):
        if index + 1 < len(groups):
            end = (1 << round(math.log2(math.sqrt(group[-1] * groups[index + 1][0])))) - 1
        else:
            end = 0 if unlimited else group[-1]
        weakest = min((picks[point] for point in group), key=lambda one: (one.ratio, -one.p))
        found.append(Range(begin, end, tuple(group), weakest))
        begin = end + 1
    return found
