"""The page step's rows: each gives zeroed memory, and umsh's own 4 KiB path is not its own baseline."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from umsh.microbench import page_step


@pytest.mark.parametrize("subject", ["4k-memset", "4k-populate", "4k", "thp"])
@pytest.mark.parametrize("nbytes", [4096, 4 << 20])
def test_every_row_gives_zeroed_memory(subject: str, nbytes: int) -> None:
    rig = SimpleNamespace(clock_ns=time.perf_counter_ns)
    sample = page_step.run(rig, subject, {"nbytes": nbytes})  # type: ignore[arg-type]
    assert sample.verified
    assert sample.values["map"] > 0


def test_only_what_people_do_is_a_baseline() -> None:
    rows = ["4k-memset", "4k-populate", "4k", "thp"]
    assert [r for r in rows if r.startswith(page_step.BENCHMARK.baselines)] == rows[:2]


def test_a_kernel_that_cannot_populate_lacks_the_row_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_step, "MADV_POPULATE_WRITE", 9999)  # no advice of any kernel: EINVAL
    found = page_step.candidates(None, {"nbytes": 4096})  # type: ignore[arg-type]
    assert "Linux 5.14" in found["4k-populate"]
    assert found["4k-memset"] == ""
