"""Planning of scattered copies: merging, order, and destinations that overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umsh.errors import NeedError
from umsh.fabric.pieces import plan


def test_pieces_that_adjoin_at_both_ends_become_one() -> None:
    made = plan([100, 110, 120], [500, 510, 520], [10, 10, 10])
    assert [column.tolist() for column in made] == [[100], [500], [30]]


def test_reversed_pieces_merge_as_well() -> None:
    made = plan([120, 110, 100], [520, 510, 500], [10, 10, 10])
    assert made.sizes.tolist() == [30]


def test_pieces_that_adjoin_at_one_end_only_stay_apart() -> None:
    assert len(plan([100, 110], [500, 700], [10, 10]).sizes) == 2


def test_nothing_is_planned_for_nothing() -> None:
    assert plan([], [], []).nbytes == 0
    assert len(plan([5, 9], [1, 2], [0, 0]).sizes) == 0


@pytest.mark.parametrize(
    ("dsts", "srcs", "sizes"),
    [([1, 2], [1], [1, 1]), ([1], [1], [-1]), ([100, 105], [0, 50], [10, 10]), ([7, 7], [0, 9], [4, 4])],
    ids=["lengths", "negative", "overlap", "duplicate"],
)
def test_what_has_no_meaning_is_refused(dsts: list[int], srcs: list[int], sizes: list[int]) -> None:
    with pytest.raises(NeedError):
        plan(dsts, srcs, sizes)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_plan_does_the_same_copy(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    starts = np.concatenate(([0], np.cumsum(np.array(sizes) + data.draw(st.integers(0, 1)))))[:n]
    order = data.draw(st.permutations(range(n)))
    dsts = [int(starts[i]) for i in order]
    sizes = [sizes[i] for i in order]
    srcs = data.draw(st.one_of(st.just(dsts), st.lists(st.integers(0, 60), min_size=n, max_size=n)))
    memory = np.arange(100)
    expected, got = np.full(100, -1), np.full(100, -1)
    for d, s, k in zip(dsts, srcs, sizes, strict=True):
        expected[d : d + k] = memory[s : s + k]
    made = plan(dsts, srcs, sizes)
    for d, s, k in zip(*made, strict=True):
        got[d : d + k] = memory[s : s + k]
    assert (expected == got).all()
    assert len(made.sizes) <= max(1, sum(1 for k in sizes if k))
