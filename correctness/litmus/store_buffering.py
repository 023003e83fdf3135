"""With a sequentially consistent fence between, two agents cannot both miss the other's store."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, Step, delay, fence, load, store


def role(mine: str, other: str, register: str, order: str) -> list[Step]:
    return [store(mine, 1, "relaxed"), fence(order), load(other, register, "relaxed")]


def bare(mine: str, other: str, register: str) -> list[Step]:
    return [store(mine, 1, "relaxed"), load(other, register, "relaxed")]


def late(mine: str, other: str, register: str) -> list[Step]:
    return [load(other, register, "relaxed"), delay(64), store(mine, 1, "relaxed")]


TEST = Litmus(
    clause="A6",
    boundary="inside",
    about="control",
    roles=[role("x", "y", "y", "seq_cst"), role("y", "x", "x", "seq_cst")],
    forbidden=["y=0 x=0"],
    ordinary=["y=0 x=1", "y=1 x=0"],
    mutants={
        "no fence": Mutant([bare("x", "y", "y"), bare("y", "x", "x")], "near"),
        "load before store": Mutant([late("x", "y", "y"), late("y", "x", "x")]),
        "one fence": Mutant([role("x", "y", "y", "seq_cst"), bare("y", "x", "x")], "weak"),
    },
)
