"""One lock shared by CPU threads and GPU threads: time per lock + unlock, and every increment counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from umsh.backends.driver import Device, Memory
from umsh.microbench.definition import RUN_TIMEOUT_S, Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import control_memories

BLOCK_BYTES = 4096
BARE = "bare@"
MIXES = ((1, 0), (0, 1), (1, 1), (2, 1))  # (CPU threads, GPU threads)


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    rounds = 10_000 if quick else 50_000
    return [{"cpu_threads": cpu, "gpu_threads": gpu, "rounds": rounds} for cpu, gpu in MIXES]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    """Each algorithm@memory with its missing fact, the empty string where it runs."""
    limit = device.gpu.pollers_max("thread")
    too_many = (
        f"{parameters['gpu_threads']} GPU threads can not spin at once here, at most {limit}"
        if int(parameters["gpu_threads"]) > limit
        else ""
    )
    found = {
        f"{algorithm}@{kind.name}": absent or missing or too_many
        for kind, absent in control_memories(device)
        for algorithm, missing in device.lock_algorithms().items()
    }
    if device.provenance == "measured" and (parameters["cpu_threads"], parameters["gpu_threads"]) == (1, 0):
        found |= {BARE + kind.name: absent for kind, absent in control_memories(device)}
    return found


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    algorithm, _, name = subject.partition("@")
    device, rounds = rig.device, int(parameters["rounds"])
    kind = next(k for k, _ in control_memories(device) if k.name == name)
    words = device.allocate(name, BLOCK_BYTES, kind.pages[0])
    counter = device.allocate(name, BLOCK_BYTES, kind.pages[0])
    sides = [(device.gpu, int(parameters["gpu_threads"])), (device.cpu, int(parameters["cpu_threads"]))]
    try:
        start = rig.clock_ns()
        if subject.startswith(BARE):
            done = _bare(words, counter, rounds)
        else:
            started = [a.lock_rounds(words, counter, rounds, algorithm, n) for a, n in sides if n]
            done = sum(pending.result(RUN_TIMEOUT_S) for pending in started)
        ns = rig.clock_ns() - start
        counted = device.cpu.gather(counter, 1, 0, counter.nbytes, "RA").result(RUN_TIMEOUT_S)
    finally:
        words.free()
        counter.free()
    wanted = rounds * sum(n for _, n in sides)
    return Sample({"lock_unlock": ns / wanted}, done == counted == wanted)


def _bare(words: Memory, counter: Memory, rounds: int) -> int:
    """The yardstick: one compare-exchange and one store in a C loop, on a thread kept as the agent's is."""
    from umsh.native import lib

    work = _one_thread().submit(lib.umsh_lock_rounds_bare, words.address, counter.address, rounds)
    return int(work.result(RUN_TIMEOUT_S))


@cache
def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="bare-lock")


BENCHMARK = Benchmark(
    key="lock",
    prose="Each thread locks, adds one to a plain counter and unlocks; wall time over all acquisitions. "
    "The counter must come out exact.",
    units={"lock_unlock": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    baselines=(BARE,),
    ranks=True,
)
