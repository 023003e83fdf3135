"""A payload written by the method is seen by whoever sees the flag released after it."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, delay, load, read, store, write

payload, flag = write("payload", 1), store("flag", 1, "release")
see_flag, see_payload = load("flag", "flag", "acquire"), read("payload", "payload")

TEST = Litmus(
    clause="W2",
    boundary="inside",
    about="data",
    roles=[[payload, flag], [see_flag, see_payload]],
    forbidden=["flag=1 payload=0"],
    ordinary=["flag=0 payload=0", "flag=1 payload=1"],
    mutants={
        "flag before payload": Mutant([[flag, delay(256), payload], [see_flag, see_payload]]),
        "payload read before flag": Mutant([[payload, flag], [see_payload, delay(256), see_flag]]),
        "no publish": Mutant([[write("payload", 1, "WA"), flag], [see_flag, see_payload]], "weak"),
        "no refresh": Mutant([[payload, flag], [see_flag, read("payload", "payload", "RA")]], "weak"),
        "relaxed flag": Mutant(
            [[payload, store("flag", 1, "relaxed")], [load("flag", "flag", "relaxed"), see_payload]], "weak"
        ),
    },
)
