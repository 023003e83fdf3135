"""A block written by the method is whole for whoever waited for the flag released after it."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, check, delay, fill, store, wait

NBYTES = 1024
payload, flag = fill("block", NBYTES), store("flag", 1, "release")
see_flag, see_payload = wait("flag", 1, "flag"), check("block", NBYTES, "bad")

TEST = Litmus(
    clause="W2",
    boundary="inside",
    about="data",
    roles=[[payload, flag], [see_flag, see_payload]],
    forbidden=["flag=0", "bad=1"],
    ordinary=["flag=1 bad=0"],
    blocks={"block": NBYTES},
    mutants={
        "flag before payload": Mutant([[flag, delay(256), payload], [see_flag, see_payload]]),
        "last line missing": Mutant([[fill("block", NBYTES - 128), flag], [see_flag, see_payload]]),
        "no publish": Mutant([[fill("block", NBYTES, "WA"), flag], [see_flag, see_payload]], "weak"),
        "no refresh": Mutant([[payload, flag], [see_flag, check("block", NBYTES, "bad", "RA")]], "weak"),
    },
)
