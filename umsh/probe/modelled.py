"""Verdicts and picks of modelled machines: what the table of the paper's statements is made from."""

from __future__ import annotations

from functools import cache

from umsh.backends import open_device
from umsh.backends.model import cost
from umsh.backends.model.description import Machine
from umsh.correctness.litmus import tests
from umsh.correctness.run import run_test
from umsh.mechanism import READ_METHODS, WRITE_METHODS
from umsh.probe.stats import EFFECT_MIN

TESTS = {"inside": ("message_passing", "bulk_message"), "kernel": ("handover", "bulk_handover")}
N, SEED = 1024, 1


@cache
def verdict(platform: str, sharing: str, direction: str, boundary: str) -> str:
    """ "kept" when every test of the boundary keeps, else the first other verdict."""
    for name in TESTS[boundary]:
        found = run_test(open_device(f"model:{platform}"), tests()[name], sharing, direction, N, SEED)
        if found.verdict != "kept":
            return found.verdict
    return "kept"


def hand_over_ns(machine: Machine, sharing: str, direction: str, nbytes: int) -> float:
    """One hand-over by that sharing on large pages where they fit."""
    name, _, how = sharing.partition(":")
    write, _, read = how.partition("/")
    writer, reader = ("cpu", "gpu") if direction == "cpu->gpu" else ("gpu", "cpu")
    pages = "thp" if nbytes >= cost.LARGE_PAGE_NBYTES else "4k"
    kind = machine.kind(name)
    work = cost.write_ns(machine, writer, kind, pages, nbytes, write)
    work += cost.read_ns(machine, reader, kind, pages, nbytes, read)
    return work + cost.start_ns(machine, "gpu") + cost.start_ns(machine, "cpu")


def fastest(
    machine: Machine, direction: str, boundary: str, nbytes: int, without: tuple[str, ...] = ()
) -> str:
    """The simplest kept sharing that no other beats by the generator's minimum effect; "" when none is kept.

    without: kinds left out.

    Simplest first, as umsh.probe.evidence has it: fewer actions, then what the vendor documents.
    """
    names = [
        (
            WRITE_METHODS.index(write) + READ_METHODS.index(read),
            not kind.documented,
            place,
            f"{kind.name}:{write}/{read}",
        )
        for place, kind in enumerate(machine.kinds)
        if kind.name not in without
        for write in machine.methods["cpu" if direction == "cpu->gpu" else "gpu"].has
        for read in machine.methods["gpu" if direction == "cpu->gpu" else "cpu"].has
        if write in WRITE_METHODS and read in READ_METHODS
    ]
    kept = [n for *_, n in sorted(names) if verdict(machine.platform, n, direction, boundary) == "kept"]
    times = {name: hand_over_ns(machine, name, direction, nbytes) for name in kept}
    for name in kept:
        if times[name] < min(times.values()) * (1 + EFFECT_MIN):
            return name
    return ""
