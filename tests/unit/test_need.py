"""Needs: what is accepted and how a wrong one is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umsh.errors import NeedError
from umsh.mechanism import PAGES, READ_METHODS, WRITE_METHODS, Mechanism
from umsh.need import BOUNDARIES, DIRECTIONS, NBYTES_MAX, SOURCES, Need, nbytes_of


@given(
    st.tuples(
        st.sampled_from(DIRECTIONS),
        st.sampled_from(SOURCES),
        st.sampled_from(BOUNDARIES),
        st.integers(1, NBYTES_MAX),
        st.integers(1, 1 << 40),
    )
)
def test_every_need_in_range_is_accepted(fields: Any) -> None:
    assert Need(*fields).nbytes == fields[3]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (("gpu->gpu", "cpu", "kernel", 1), "direction='gpu->gpu'"),
        (("both", "disk", "kernel", 1), "source='disk'"),
        (("both", "cpu", "warp", 1), "boundary='warp'"),
        (("both", "cpu", "kernel", 0), "0 bytes"),
        (("both", "cpu", "kernel", -1), "-1 bytes"),
        (("both", "cpu", "kernel", NBYTES_MAX + 1), "bytes was asked"),
        (("both", "cpu", "kernel", 1, 0), "passes=0"),
    ],
)
def test_a_need_out_of_range_names_the_field_and_value(fields: Any, named: str) -> None:
    with pytest.raises(NeedError) as caught:
        Need(*fields)
    assert named in str(caught.value)


def test_negative_extents_are_refused_even_when_their_product_is_positive() -> None:
    with pytest.raises(NeedError, match="negative"):
        nbytes_of((-2, -2), 4)


@given(st.sampled_from(PAGES), st.sampled_from(WRITE_METHODS), st.sampled_from(READ_METHODS))
def test_a_mechanism_survives_its_name(pages: str, write: str, read: str) -> None:
    mechanism = Mechanism("usm-host", pages, write, read)
    assert Mechanism.parse(mechanism.name) == mechanism


@pytest.mark.parametrize(
    "name", ["", "auto:", "svm", "svm.4k", "svm.4k:WA", "svm.8k:WA/RA", "svm.4k:RA/WA", ".4k:WA/RA"]
)
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(NeedError, match="form"):
        Mechanism.parse(name)
