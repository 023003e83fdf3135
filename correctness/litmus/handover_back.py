"""A word that goes over, is overwritten there and comes back carries what the other agent wrote."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, delay, read, write

first = [write("word", 1)]
second = [read("word", "there"), write("word", 2)]
third = [read("word", "back")]

TEST = Litmus(
    clause="T1",
    boundary="kernel",
    about="data",
    roles=[first, second, third],
    forbidden=["there=0", "back=0", "back=1"],
    ordinary=["there=1 back=2"],
    mutants={
        "not awaited": Mutant([[delay(16384), *first], second, third], unordered=True),
        "not overwritten": Mutant([first, second[:1], third]),
        "no publish": Mutant([first, [second[0], write("word", 2, "WA")], third], "weak"),
        "no refresh": Mutant([first, second, [read("word", "back", "RA")]], "weak"),
    },
)
