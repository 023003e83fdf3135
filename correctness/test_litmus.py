"""Every litmus test on every device found here: kept passes, broken or unproven in force fails."""

from __future__ import annotations

from typing import Any

import pytest

from umsh.correctness.run import run_test


def test_litmus(verdict_of: tuple[Any, ...]) -> None:
    device, test, subject, direction, n, seed, in_force = verdict_of
    verdict = run_test(device, test, subject, direction, n, seed)
    if verdict.verdict == "absent":
        pytest.skip(verdict.reason)
    if verdict.verdict == "kept":
        return
    told = f"{verdict.verdict}: {verdict.reason} (seed {seed}, {verdict.outcomes})"
    if in_force:
        pytest.fail(f"in force here and {told}", pytrace=False)
    pytest.xfail(f"not in force here, {told}")
