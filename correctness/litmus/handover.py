"""Words written before a hand-over between kernels are seen after it."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, delay, read, write

writer = [write("x", 1), write("y", 2)]
reader = [read("y", "y"), read("x", "x")]

TEST = Litmus(
    clause="T1",
    boundary="kernel",
    about="data",
    roles=[writer, reader],
    forbidden=["x=0", "y=0"],
    ordinary=["y=2 x=1"],
    mutants={
        "not awaited": Mutant([[delay(16384), *writer], reader], unordered=True),
        "one word missing": Mutant([writer[:1], reader]),
        "no publish": Mutant([[write("x", 1, "WA"), write("y", 2, "WA")], reader], "weak"),
        "no refresh": Mutant([writer, [read("y", "y", "RA"), read("x", "x", "RA")]], "weak"),
    },
)
