"""What one agent writes by the method becomes visible to an agent that goes on reading by the method."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, poll, write

see = poll("word", 1, "seen")

TEST = Litmus(
    clause="R1",
    boundary="inside",
    about="data",
    roles=[[write("word", 1)], [see]],
    forbidden=["seen=0"],
    ordinary=["seen=1"],
    mutants={
        "no write": Mutant([[], [see]]),
        "no publish": Mutant([[write("word", 1, "WA")], [see]], "weak"),
        "no refresh": Mutant([[write("word", 1)], [poll("word", 1, "seen", "RA")]], "weak"),
    },
)
