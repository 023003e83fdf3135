"""Statistics of raw samples: median and spread, the U test, and when one candidate beats another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

ALPHA = 0.01  # two-sided; seven samples a side that do not overlap give p = 0.0006
EFFECT_MIN = 0.05  # a smaller difference is not worth a less simple mechanism
EXACT_MAX = 20  # samples a side up to which the U distribution is counted, not approximated


@dataclass(frozen=True, slots=True)
class Summary:
    """Median, quartiles and count of samples, in the samples' unit."""

    n: int
    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Interquartile range divided by the median; 0 when the median is 0."""
        return (self.high - self.low) / self.median if self.median else 0.0


def quantile(samples: Sequence[float], q: float) -> float:
    """The q-quantile by linear interpolation (NumPy's default); ValueError when there is no sample."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(samples: Sequence[float]) -> float:
    """The median; ValueError when there is no sample."""
    return quantile(samples, 0.5)


def summarise(samples: Sequence[float]) -> Summary:
    """Median with quartiles of at least one sample."""
    return Summary(len(samples), median(samples), quantile(samples, 0.25), quantile(samples, 0.75))


def u_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p of the Mann-Whitney U test (Mann and Whitney 1947) that both come from one distribution.

    Without ties and with at most EXACT_MAX samples a side the distribution of U is counted; else the
    normal approximation with tie correction and continuity correction is used. p is 1.0 when either
    side is empty or all values are equal: no evidence of a difference.
    """
    n, m = len(first), len(second)
    if n == 0 or m == 0:
        return 1.0
    u, ties = _u_statistic(first, second)
    if ties == 0 and max(n, m) <= EXACT_MAX:
        counts = _u_counts(n, m)
        tail = sum(counts[: math.floor(min(u, n * m - u)) + 1])
        return min(1.0, 2.0 * tail / math.comb(n + m, n))
    total = n + m
    variance = n * m / 12.0 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    z = (abs(u - n * m / 2.0) - 0.5) / math.sqrt(variance)
    return min(1.0, math.erfc(z / math.sqrt(2.0)))


def _u_statistic(first: Sequence[float], second: Sequence[float]) -> tuple[float, int]:
    """U of the first side, and the sum of t**3 - t over groups of t equal values."""
    pooled = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum, ties, start = 0.0, 0, 0
    while start < len(pooled):
        end = start
        while end < len(pooled) and pooled[end][0] == pooled[start][0]:
            end += 1
        rank = (start + 1 + end) / 2.0
        rank_sum += rank * sum(1 for _, side in pooled[start:end] if side == 0)
        ties += (end - start) ** 3 - (end - start)
        start = end
    n = len(first)
    return rank_sum - n * (n + 1) / 2.0, ties


@lru_cache(maxsize=64)
def _u_counts(n: int, m: int) -> tuple[int, ...]:
    """How many of the C(n+m, n) orderings give U = 0, 1, ..., n*m (the Gaussian binomial coefficients)."""
    counts = [1] + [0] * (n * m)
    for k in range(1, n + 1):
        for u in range(n * m, m + k - 1, -1):
            counts[u] -= counts[u - m - k]
        for u in range(k, n * m + 1):
            counts[u] += counts[u - k]
    return tuple(counts)


def beats(candidate: Sequence[float], other: Sequence[float]) -> bool:
    """Whether candidate (less is better) is faster by the U test and by the minimum effect, both."""
    slower, faster = median(other), median(candidate)
    return slower >= faster * (1 + EFFECT_MIN) and u_test(candidate, other) < ALPHA


def simplest_unbeaten(samples: Mapping[str, Sequence[float]], order: Sequence[str], prefer: str = "") -> str:
    """The first name of `order` (simplest first) that nothing beats; `prefer` first, where it is unbeaten.

    The fastest median is never beaten, so there always is one. ValueError when `order` is empty.
    """
    if not order:
        raise ValueError("no candidates")
    ranked = [prefer, *order] if prefer in order else list(order)
    for name in ranked:
        if not any(beats(samples[other], samples[name]) for other in order if other != name):
            return name
    raise AssertionError("unreachable: the fastest median is never beaten")


SPREAD_MAX = 0.75  # median over groups of the interquartile range divided by the median
TWINS_DIFFER_MAX = 0.15  # share of groups in which the same candidate differed from itself


def noise_verdict(noise: Mapping[str, float]) -> str:
    """Why timings cannot rank mechanisms here; the empty string when they can.

    Each group of interleaved candidates measures one of them twice. Twins that differ by the very test
    that ranks mechanisms mean that the machine changed faster than interleaving could cancel.
    """
    groups, differ = noise.get("twins", 0.0), noise.get("twins_differ", 0.0)
    if differ >= 2 and differ > TWINS_DIFFER_MAX * groups:
        return (
            f"in {differ:.0f} of {groups:.0f} groups one mechanism, measured twice, differed from itself "
            f"(at most {TWINS_DIFFER_MAX:.0%} of them may)"
        )
    spread = noise.get("spread", 0.0)
    if spread > SPREAD_MAX:
        return f"the typical interquartile range is {spread:.0%} of the median (limit {SPREAD_MAX:.0%})"
    return ""
