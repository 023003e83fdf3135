"""Two increments under the lock, one an agent, both count: nobody enters beside the holder."""

from __future__ import annotations

from umsh.correctness.language import SUBJECT, Litmus, Mutant, Step, increment, lock, unlock


def both(algorithm: str) -> list[list[Step]]:
    def role(register: str) -> list[Step]:
        return [lock("lock", algorithm), increment("word", register), unlock("lock", algorithm)]

    return [role("first"), role("second")]


TEST = Litmus(
    clause="L1 L2",
    boundary="inside",
    about="lock",
    initial={"word": 0},
    roles=both(SUBJECT),
    forbidden=["first=0 second=0", "first=1 second=1"],
    ordinary=["first=0 second=1", "first=1 second=0"],
    mutants={
        "no lock": Mutant([[increment("word", "first")], [increment("word", "second")]]),
        "test, then set": Mutant(both("test_then_set")),
    },
)
