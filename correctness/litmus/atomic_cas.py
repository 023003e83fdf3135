"""Of two compare-exchanges from the initial value, one an agent, exactly one wins."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, Step, cas


def both(order: str) -> list[list[Step]]:
    return [[cas("word", 0, 1, "first", order)], [cas("word", 0, 2, "second", order)]]


TEST = Litmus(
    clause="A5",
    boundary="inside",
    about="atomic",
    initial={"word": 0},
    roles=both("seq_cst"),
    forbidden=["first=0 second=0", "first=2 second=1"],
    ordinary=["first=0 second=1", "first=2 second=0"],
    mutants={"load, compare, store": Mutant(both("split"))},
)
