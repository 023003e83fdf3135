"""Verdicts: kept, broken, unproven or absent, each with its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from umsh.correctness.language import Litmus, matches, outcome

Outcomes = Mapping[str, int]

IN_VAIN = "one agent waited for the other in vain"


@dataclass(frozen=True, slots=True)
class Tally:
    """What one series of instances showed. outcomes: text -> count; stopped: why it ended early, else ""."""

    n: int
    outcomes: Outcomes
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One litmus test on one subject in one direction; the fields of umsh.profile.VerdictRecord.

    verdict: "kept", "broken", "unproven" or "absent"; reason says why. n: instances completed.
    forbidden: how many showed a forbidden outcome. bound: 3 / n when none did (rule of three, 95 %),
    else 1. mutants: name -> "caught", "missed" or "not observable here".
    """

    test: str
    test_hash: str
    subject: str
    direction: str
    boundary: str
    verdict: str
    reason: str
    n: int = 0
    forbidden: int = 0
    bound: float = 1.0
    outcomes: dict[str, int] = field(default_factory=dict)
    ordinary_missing: list[str] = field(default_factory=list)
    mutants: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def count_forbidden(test: Litmus, outcomes: Outcomes) -> int:
    """Instances of the outcomes that the test forbids."""
    return sum(count for text, count in outcomes.items() if is_forbidden(test, text))


def is_forbidden(test: Litmus, text: str) -> bool:
    seen = outcome(text)
    return any(matches(one, seen) for one in test.forbidden)


def missing(test: Litmus, outcomes: Outcomes) -> list[str]:
    """The ordinary outcomes that no instance showed."""
    return [one for one in test.ordinary if not any(matches(one, outcome(text)) for text in outcomes)]


def judge(test: Litmus, tally: Tally, mutants: Mapping[str, str]) -> tuple[str, str]:
    """(verdict, reason) of a run and of its mutants, by the rules of docs/litmus.md."""
    bad = count_forbidden(test, tally.outcomes)
    if bad:
        shown = [text for text in tally.outcomes if is_forbidden(test, text)]
        often = max(shown, key=tally.outcomes.__getitem__)
        return "broken", f"{bad} of {tally.n} instances showed a forbidden outcome, most often {often!r}"
    if tally.stopped == IN_VAIN and test.about == "lock":
        return (
            "broken",
            f"stopped after {tally.n} instances: {tally.stopped}, so the lock was lost or starves",
        )
    if tally.stopped:
        return "unproven", f"stopped after {tally.n} instances: {tally.stopped}"
    gone = missing(test, tally.outcomes)
    if gone:
        return "unproven", f"ordinary outcome never seen in {tally.n} instances: {', '.join(map(repr, gone))}"
    missed = [name for name, result in mutants.items() if result == "missed"]
    if missed:
        return "unproven", f"mutant not caught under the same stress: {', '.join(map(repr, missed))}"
    return "kept", f"no forbidden outcome in {tally.n} instances"
