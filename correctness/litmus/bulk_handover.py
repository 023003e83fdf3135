"""A block written before a hand-over between kernels is whole after it."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, check, delay, fill

NBYTES = 4096
writer, reader = [fill("block", NBYTES)], [check("block", NBYTES, "bad")]

TEST = Litmus(
    clause="T1",
    boundary="kernel",
    about="data",
    roles=[writer, reader],
    forbidden=["bad=1"],
    ordinary=["bad=0"],
    blocks={"block": NBYTES},
    mutants={
        "not awaited": Mutant([[delay(16384), *writer], reader], unordered=True),
        "last line missing": Mutant([[fill("block", NBYTES - 128)], reader]),
        "no publish": Mutant([[fill("block", NBYTES, "WA")], reader], "weak"),
        "no refresh": Mutant([writer, [check("block", NBYTES, "bad", "RA")]], "weak"),
    },
)
