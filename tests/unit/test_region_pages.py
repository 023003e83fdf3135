"""Large pages asked for and not given: told, never hidden."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import umsh
from umsh.errors import FallbackWarning
from umsh.mechanism import Backing


@pytest.mark.parametrize(("huge", "warns"), [(0, True), (2 << 20, True), (4 << 20, False)])
def test_large_pages_that_were_not_given_are_told_once(
    fake: Any, monkeypatch: pytest.MonkeyPatch, huge: int, warns: bool
) -> None:
    """A07: https://github.com/google/gvisor/issues/12804"""
    real = fake.allocate

    def allocate(*asked: Any) -> Any:
        memory = real(*asked)
        memory.backing = Backing("thp", huge, memory.nbytes, 2 << 20, "smaps")
        return memory

    monkeypatch.setattr(fake, "allocate", allocate)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            region = umsh.bind((4 << 20) + 4096, "u1", mechanism="fast.thp:WA/RA")
    assert [type(one.message) for one in told] == ([FallbackWarning] if warns else [])
    assert f"{huge} of 4198400 B on large pages" in str(umsh.explain(region))
