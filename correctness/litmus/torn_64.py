"""An aligned 64-bit access never shows half of one store and half of another."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, load, store

reader = [load("word", "seen", "relaxed", "64")]
halves = [store("word", value, "split", "64") for value in (1, 2)]

TEST = Litmus(
    clause="A4",
    boundary="inside",
    about="control",
    roles=[[store("word", value, "relaxed", "64") for value in (1, 2)], reader],
    forbidden=[f"seen_low={a} seen_high={b}" for a in range(3) for b in range(3) if a != b],
    ordinary=["seen_low=0 seen_high=0", "seen_low=2 seen_high=2"],
    mutants={
        "stored as two 32-bit halves": Mutant([halves, reader]),
    },
)
