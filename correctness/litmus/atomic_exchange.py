"""Of two exchanges of one word, one an agent, only one gets the initial value."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, Step, exchange


def both(order: str) -> list[list[Step]]:
    return [[exchange("word", 1, "first", order)], [exchange("word", 2, "second", order)]]


TEST = Litmus(
    clause="A5",
    boundary="inside",
    about="atomic",
    initial={"word": 0},
    roles=both("seq_cst"),
    forbidden=["first=0 second=0", "first=2 second=1"],
    ordinary=["first=0 second=1", "first=2 second=0"],
    mutants={"load then store": Mutant(both("split"))},
)
