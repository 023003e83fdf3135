"""Two agents that set each other's flag and wait for their own always both wake."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, store, wait

first = [store("ping", 1, "release"), wait("pong", 1, "first")]
second = [wait("ping", 1, "second"), store("pong", 1, "release")]

TEST = Litmus(
    clause="S2",
    boundary="inside",
    about="control",
    roles=[first, second],
    forbidden=["first=0", "second=0"],
    ordinary=["first=1 second=1"],
    mutants={"answer missing": Mutant([first, second[:1]])},
)
