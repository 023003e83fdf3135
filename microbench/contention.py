"""Many GPU threads wait for one CPU flag, throttled at thread, block, grid or kernel level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from umsh.backends.driver import Device
from umsh.mechanism import THROTTLE_LEVELS
from umsh.microbench.definition import RUN_TIMEOUT_S, Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import control_memories

WORDS_BYTES = 4096
THREADS = (1, 64, 256, 1024, 4096)
THREADS_QUICK = (1, 256, 4096)


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    """Thread counts on the first memory kind fit for flags; few rounds, since waiters may outnumber cores."""
    kind = next((k.name for k, missing in control_memories(device) if not missing), "")
    rounds = 20 if quick else 40
    return [{"threads": n, "memory": kind, "rounds": rounds} for n in (THREADS_QUICK if quick else THREADS)]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    return {level: _missing(device, level, int(parameters["threads"])) for level in THROTTLE_LEVELS}


def _missing(device: Device, level: str, threads: int) -> str:
    limit = device.gpu.pollers_max(level)
    if limit == 0:
        return f"this device has no {level}-level wait"
    return "" if threads <= limit else f"at most {limit} threads can wait at once at {level} level here"


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    rounds, device = int(parameters["rounds"]), rig.device
    kind = next(k for k, _ in control_memories(device) if k.name == parameters["memory"])
    words = device.allocate(kind.name, WORDS_BYTES, kind.pages[0])
    try:
        pollers = device.gpu.poll(words, subject, int(parameters["threads"]), rounds)
        start = rig.clock_ns()
        done = device.cpu.echo(words, rounds, first=True).result(RUN_TIMEOUT_S)
        ns = rig.clock_ns() - start
        answered = pollers.result(RUN_TIMEOUT_S)
    finally:
        words.free()
    return Sample({"round": ns / rounds}, done == answered == rounds)


def applies(device: Device) -> str:
    return "" if any(not missing for _, missing in control_memories(device)) else "no memory fit for flags"


BENCHMARK = Benchmark(
    key="contention",
    prose="The CPU sets a flag, all GPU threads must see it, one answers; time of one such round. "
    "Levels that the device cannot run at once are waived with the limit.",
    units={"round": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    applies=applies,
    ranks=True,
)
