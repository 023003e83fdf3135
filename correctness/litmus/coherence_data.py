"""Two reads of one word by the method never see its writes in opposite order."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, delay, read, write

reader = [read("word", "first"), delay(64), read("word", "second")]

TEST = Litmus(
    clause="R1",
    boundary="inside",
    about="data",
    roles=[[write("word", 1), write("word", 2)], reader],
    forbidden=["first=1 second=0", "first=2 second=0", "first=2 second=1"],
    ordinary=["first=0 second=0", "first=2 second=2"],
    mutants={
        "writes swapped": Mutant([[write("word", 2), delay(256), write("word", 1)], reader]),
        "reads swapped": Mutant([[write("word", 1), write("word", 2)], reader[::-1]]),
    },
)
