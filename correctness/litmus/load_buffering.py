"""Two agents that each load before they store cannot both see the other's store."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, Step, delay, load, store


def role(mine: str, other: str, register: str, loaded: str, stored: str) -> list[Step]:
    return [load(other, register, loaded), store(mine, 1, stored)]


ordered = [role("x", "y", "y", "acquire", "release"), role("y", "x", "x", "acquire", "release")]
relaxed = [role("x", "y", "y", "relaxed", "relaxed"), role("y", "x", "x", "relaxed", "relaxed")]

TEST = Litmus(
    clause="A7",
    boundary="inside",
    about="control",
    roles=ordered,
    forbidden=["y=1 x=1"],
    ordinary=["y=0 x=0", "y=0 x=1", "y=1 x=0"],
    mutants={
        "store before load": Mutant([[second, delay(64), first] for first, second in ordered]),
        "relaxed": Mutant(relaxed, "weak"),
    },
)
