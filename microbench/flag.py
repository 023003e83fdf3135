"""Flag round trip between the CPU and a running kernel, beside a bare C loop on the same memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Thread

from umsh.backends.driver import Device, Memory
from umsh.microbench.definition import RUN_TIMEOUT_S, Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import control_memories

WORDS_BYTES = 4096
BARE = "bare@"


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    return [{"rounds": 5_000 if quick else 20_000}]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    """Each memory kind fit for flags, and on real devices the bare loop on the same memory."""
    found = {kind.name: missing for kind, missing in control_memories(device)}
    if device.provenance == "measured":
        found |= {BARE + name: missing for name, missing in found.items()}
    return found


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    rounds, device = int(parameters["rounds"]), rig.device
    kind = next(k for k, _ in control_memories(device) if k.name == subject.removeprefix(BARE))
    words = device.allocate(kind.name, WORDS_BYTES, kind.pages[0])
    try:
        echo = device.gpu.echo(words, rounds, first=False)
        start = rig.clock_ns()
        if subject.startswith(BARE):
            done = _bare(words, rounds)
        else:
            done = device.cpu.echo(words, rounds, first=True).result(RUN_TIMEOUT_S)
        ns = rig.clock_ns() - start
        answered = echo.result(RUN_TIMEOUT_S)
    finally:
        words.free()
    return Sample({"round_trip": ns / rounds}, done == answered == rounds)


def _bare(words: Memory, rounds: int) -> int:
    """The yardstick: plain C without bounds, sleeps or sequence arithmetic, on a thread of its own."""
    from umsh.native import lib

    result: list[int] = []
    timeout_ns = int(RUN_TIMEOUT_S * 1e9)
    thread = Thread(target=lambda: result.append(lib.umsh_echo_bare(words.address, rounds, 1, timeout_ns)))
    thread.start()
    thread.join()
    return result[0]


BENCHMARK = Benchmark(
    key="flag",
    prose="The CPU sets a flag and waits for the answer of one work-item; mean over the rounds of one run.",
    units={"round_trip": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    baselines=(BARE,),
    ranks=True,
)
