"""A plain word stored before a release is seen by whoever acquires the released value."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, delay, load, store

payload, flag = store("payload", 1), store("flag", 1, "release")
see_flag, see_payload = load("flag", "flag", "acquire"), load("payload", "payload")

TEST = Litmus(
    clause="A2",
    boundary="inside",
    about="control",
    roles=[[payload, flag], [see_flag, see_payload]],
    forbidden=["flag=1 payload=0"],
    ordinary=["flag=0 payload=0", "flag=1 payload=1"],
    mutants={
        "flag before payload": Mutant([[flag, delay(64), payload], [see_flag, see_payload]]),
        "payload read before flag": Mutant([[payload, flag], [see_payload, delay(64), see_flag]]),
        "relaxed store": Mutant([[payload, store("flag", 1, "relaxed")], [see_flag, see_payload]], "weak"),
        "relaxed load": Mutant([[payload, flag], [load("flag", "flag", "relaxed"), see_payload]], "weak"),
    },
)
