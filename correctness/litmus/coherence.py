"""Two loads of one control word never see its stores in opposite order."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, delay, load, store

writer = [store("word", 1, "relaxed"), store("word", 2, "relaxed")]
reader = [load("word", "first", "relaxed"), delay(64), load("word", "second", "relaxed")]

TEST = Litmus(
    clause="A3",
    boundary="inside",
    about="control",
    roles=[writer, reader],
    forbidden=["first=1 second=0", "first=2 second=0", "first=2 second=1"],
    ordinary=["first=0 second=0", "first=2 second=2"],
    mutants={
        "stores swapped": Mutant([[writer[1], delay(64), writer[0]], reader]),
        "loads swapped": Mutant([writer, reader[::-1]]),
    },
)
