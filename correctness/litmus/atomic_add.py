"""Two fetch-adds of one word, one an agent, both count."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, add

TEST = Litmus(
    clause="A5",
    boundary="inside",
    about="atomic",
    initial={"word": 0},
    roles=[[add("word", 1, "first")], [add("word", 1, "second")]],
    forbidden=["first=0 second=0", "first=1 second=1"],
    ordinary=["first=0 second=1", "first=1 second=0"],
    mutants={
        "load then store": Mutant([[add("word", 1, "first", "split")], [add("word", 1, "second", "split")]]),
        "one agent atomic": Mutant([[add("word", 1, "first", "split")], [add("word", 1, "second")]]),
    },
)
