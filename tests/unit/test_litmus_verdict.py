"""A verdict follows from evidence only: no failure alone proves nothing."""

from __future__ import annotations

import msgspec

from umsh.correctness.language import Litmus, Mutant, load, store
from umsh.correctness.verdict import Tally, Verdict, count_forbidden, judge, missing
from umsh.profile import VerdictRecord

ROLES = [[store("x", 1)], [load("x", "r")]]
TEST = Litmus("A1", "inside", "control", ROLES, ["r=2"], ["r=0", "r=1"], {"m": Mutant(ROLES)})
BOTH = {"r=0": 5, "r=1": 5}
CAUGHT = {"m": "caught"}


def test_kept_needs_ordinary_outcomes_and_caught_mutants() -> None:
    assert judge(TEST, Tally(10, BOTH), CAUGHT)[0] == "kept"


def test_one_forbidden_outcome_breaks_whatever_else_was_seen() -> None:
    verdict, reason = judge(TEST, Tally(11, {**BOTH, "r=2": 1}), CAUGHT)
    assert verdict == "broken"
    assert "1 of 11" in reason
    assert "r=2" in reason
    assert judge(TEST, Tally(11, {"r=2": 1}, "it hung"), {})[0] == "broken"


def test_a_missing_ordinary_outcome_is_no_proof() -> None:
    verdict, reason = judge(TEST, Tally(10, {"r=0": 10}), CAUGHT)
    assert verdict == "unproven"
    assert "r=1" in reason


def test_a_missed_mutant_is_no_proof() -> None:
    verdict, reason = judge(TEST, Tally(10, BOTH), {"m": "missed"})
    assert verdict == "unproven"
    assert "m" in reason


def test_a_weak_mutant_never_counts_against() -> None:
    assert judge(TEST, Tally(10, BOTH), {**CAUGHT, "weak": "not observable here"})[0] == "kept"


def test_a_run_that_stopped_is_no_proof() -> None:
    verdict, reason = judge(TEST, Tally(3, BOTH, "one agent waited for the other in vain"), {})
    assert verdict == "unproven"
    assert "after 3" in reason


def test_counting_uses_partial_outcomes() -> None:
    assert count_forbidden(TEST, {"r=2": 3, "r=1": 4}) == 3
    assert missing(TEST, {"r=1": 4}) == ["r=0"]


def test_a_verdict_is_a_profile_record() -> None:
    made = Verdict("t", "0" * 16, "svm", "cpu->gpu", "inside", "kept", "", n=3000, bound=0.001, outcomes=BOTH)
    assert msgspec.convert(made.to_dict(), VerdictRecord).bound == 0.001
