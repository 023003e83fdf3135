"""A waiter always hears of a set, however early or late it comes, and sees what was stored before it."""

from __future__ import annotations

from umsh.correctness.language import Litmus, Mutant, delay, load, store, wait

payload, notify = store("payload", 1), store("flag", 1, "release")
listen, see = wait("flag", 1, "woken"), load("payload", "payload")

TEST = Litmus(
    clause="S1 S2",
    boundary="inside",
    about="control",
    roles=[[payload, notify], [listen, see]],
    forbidden=["woken=0", "woken=1 payload=0"],
    ordinary=["woken=1 payload=1"],
    mutants={
        "set before payload": Mutant([[notify, delay(64), payload], [listen, see]]),
        "no set": Mutant([[payload], [listen, see]]),
        "relaxed set": Mutant([[payload, store("flag", 1, "relaxed")], [listen, see]], "weak"),
    },
)
