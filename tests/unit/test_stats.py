"""Statistics: the U test against known values, the minimum effect, the order of simplicity, noise."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umsh.probe import stats

floats = st.floats(min_value=1, max_value=1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([1, 2, 3], [4, 5, 6], 0.1),  # 2 / C(6,3)
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 / 252),
        ([19, 22, 16, 29, 24], [20, 11, 17, 12], 0.1111111),  # Mann-Whitney example of SciPy's manual
        ([1, 1, 1], [1, 1, 1], 1.0),
        ([], [1, 2], 1.0),
    ],
)
def test_u_test_gives_the_published_p(first: list[float], second: list[float], p: float) -> None:
    assert stats.u_test(first, second) == pytest.approx(p, rel=1e-5)


def test_exact_counts_equal_a_full_enumeration() -> None:
    n, m = 4, 5
    counted = [0] * (n * m + 1)
    for places in itertools.combinations(range(n + m), n):
        counted[sum(places) - n * (n - 1) // 2] += 1
    assert list(stats._u_counts(n, m)) == counted
    assert sum(counted) == math.comb(n + m, n)


@settings(deadline=None)
@given(st.lists(floats, min_size=1, max_size=12), st.lists(floats, min_size=1, max_size=12))
def test_u_test_is_symmetric_and_a_probability(first: list[float], second: list[float]) -> None:
    p = stats.u_test(first, second)
    assert 0 < p <= 1
    assert p == pytest.approx(stats.u_test(second, first))


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=30),
    st.lists(st.integers(1, 40), min_size=2, max_size=30),
)
def test_u_test_agrees_with_scipy(first: list[int], second: list[int]) -> None:
    scipy_stats = pytest.importorskip("scipy.stats", reason="scipy is not installed here")
    tied = len({*first, *second}) < len(first) + len(second)
    exact = not tied and max(len(first), len(second)) <= stats.EXACT_MAX
    want = scipy_stats.mannwhitneyu(first, second, method="exact" if exact else "asymptotic").pvalue
    if not math.isnan(want):
        assert stats.u_test(first, second) == pytest.approx(min(1.0, want), abs=1e-9)


def test_a_difference_below_the_minimum_effect_does_not_win() -> None:
    slow = [100.0 + i for i in range(15)]
    fast = [value * 0.97 for value in slow]
    clear = [value * 0.80 for value in slow]
    assert not stats.beats(fast, slow)
    assert stats.beats(clear, slow)
    assert not stats.beats(slow, clear)


def test_a_difference_that_chance_explains_does_not_win() -> None:
    assert not stats.beats([50.0, 60.0, 900.0], [100.0, 101.0, 102.0])


def test_the_simplest_unbeaten_candidate_is_chosen() -> None:
    samples = {
        "simple": [100.0 + i for i in range(9)],
        "equal": [99.0 + i for i in range(9)],
        "slow": [200.0 + i for i in range(9)],
    }
    assert stats.simplest_unbeaten(samples, ["simple", "equal", "slow"]) == "simple"
    assert stats.simplest_unbeaten(samples, ["slow", "equal", "simple"]) == "equal"
    assert stats.simplest_unbeaten(samples, ["simple", "equal", "slow"], prefer="equal") == "equal"
    assert stats.simplest_unbeaten(samples, ["simple", "equal", "slow"], prefer="slow") == "simple"
    with pytest.raises(ValueError, match="no candidates"):
        stats.simplest_unbeaten(samples, [])


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.lists(floats, min_size=1, max_size=9), min_size=1, max_size=5))
def test_there_always_is_an_unbeaten_candidate(samples: dict[str, list[float]]) -> None:
    assert stats.simplest_unbeaten(samples, sorted(samples)) in samples


def test_summary_gives_median_quartiles_and_relative_spread() -> None:
    summary = stats.summarise([5, 1, 3, 2, 4])
    assert (summary.n, summary.median, summary.low, summary.high) == (5, 3, 2, 4)
    assert summary.spread == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no samples"):
        stats.summarise([])


@pytest.mark.parametrize(
    ("noise", "says"),
    [
        ({"twins": 20, "twins_differ": 1, "spread": 0.1}, ""),
        ({"twins": 20, "twins_differ": 8, "spread": 0.1}, "8 of 20"),
        ({"twins": 20, "twins_differ": 0, "spread": 0.9}, "90%"),
        ({}, ""),
    ],
)
def test_a_noisy_machine_is_named_with_the_figure(noise: dict[str, float], says: str) -> None:
    verdict = stats.noise_verdict(noise)
    assert (says in verdict) if says else verdict == ""
