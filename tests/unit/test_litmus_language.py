"""Litmus tests are data: every file declares one that is complete, consistent and cites the contract."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from umsh.correctness.encode import layout
from umsh.correctness.language import ABOUT, BOUNDARIES, LINE_NBYTES, Litmus, Role, load, matches, outcome
from umsh.correctness.litmus import tests as litmus_tests
from umsh.correctness.verdict import is_forbidden

ROOT = Path(__file__).resolve().parents[2]
LITMUS = litmus_tests()
each = pytest.mark.parametrize("test", LITMUS.values(), ids=LITMUS.keys())


def registers(roles: list[Role]) -> set[str]:
    return {name for role in roles for step in role for name in step.registers}


def test_outcomes_are_partial_assignments() -> None:
    seen = {"flag": 1, "payload": 0}
    assert outcome("flag=1 payload=0") == seen
    assert matches("flag=1", seen)
    assert not matches("flag=1 payload=1", seen)


def test_wide_loads_observe_both_halves() -> None:
    assert load("x", "r", width="64").registers == ("r_low", "r_high")


def test_the_asked_shapes_are_all_there() -> None:
    wanted = {
        "message_passing", "message_passing_control", "store_buffering", "load_buffering", "read_after_write",
        "coherence", "coherence_data", "bulk_message", "atomic_cas", "atomic_add", "atomic_exchange",
        "mutual_exclusion", "wait_set", "torn_32", "torn_64", "handover", "bulk_handover", "handover_back",
    }  # fmt: skip
    assert wanted <= set(LITMUS)


@each
def test_a_test_is_named_by_its_file_and_hashed(test: Litmus) -> None:
    assert (ROOT / "correctness" / "litmus" / f"{test.name}.py").exists()
    assert re.fullmatch(r"[0-9a-f]{16}", test.digest)


def test_digests_differ() -> None:
    assert len({test.digest for test in LITMUS.values()}) == len(LITMUS)


@each
def test_a_test_cites_clauses_of_the_contract(test: Litmus) -> None:
    contract = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    for clause in test.clause.split():
        assert f"| {clause} |" in contract


@each
def test_a_test_is_well_formed(test: Litmus) -> None:
    assert test.boundary in BOUNDARIES
    assert test.about in ABOUT
    assert len(test.roles) == 2 or test.boundary == "kernel"
    assert len(test.registers) == len(set(test.registers))
    for text in (*test.forbidden, *test.ordinary):
        assert set(outcome(text)) <= set(test.registers)


@each
def test_no_outcome_is_both_forbidden_and_ordinary(test: Litmus) -> None:
    for text in test.ordinary:
        if set(outcome(text)) == set(test.registers):
            assert not is_forbidden(test, text)


@each
def test_every_mutant_observes_what_the_test_observes(test: Litmus) -> None:
    assert any(mutant.observable == "always" for mutant in test.mutants.values()), "nothing shows it can fail"
    for mutant in test.mutants.values():
        assert registers(list(mutant.roles)) == set(test.registers)
        assert len(mutant.roles) == len(test.roles)


@each
def test_locations_lie_on_lines_of_their_own(test: Litmus) -> None:
    where = layout(test, 40)
    spans = sorted(
        (offset, offset + where.nbytes[name]) for name, offset in where.offsets.items() if where.nbytes[name]
    )
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start // LINE_NBYTES > (end - 1) // LINE_NBYTES
