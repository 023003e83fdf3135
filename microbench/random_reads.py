"""Small random reads: time of one access by memory kind, page kind, read method and reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from umsh.backends.driver import Device
from umsh.mechanism import READ_METHODS
from umsh.microbench.definition import MIB, RUN_TIMEOUT_S, Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import memories

ACCESSES = 50_000
STRIDE_BYTES = 64


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    sizes = (16 * MIB,) if quick else (16 * MIB, 256 * MIB)
    return [{"nbytes": n, "reader": r, "accesses": ACCESSES} for n in sizes for r in ("cpu", "gpu")]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    reader = device.cpu if parameters["reader"] == "cpu" else device.gpu
    return {
        f"{kind.name}.{pages}/{read}": kind.absent or reader.methods().get(read, f"no {read}")
        for kind, pages in memories(device)
        if kind.name != "copy"
        for read in READ_METHODS
        if read != "copy"
    }


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """Read seeded-random words; the other agent's plain reads of the same words give the expected sum."""
    where, _, read = subject.partition("/")
    kind, _, pages = where.rpartition(".")
    memory, seed = rig.memory(kind, pages, int(parameters["nbytes"])), rig.next_seed()
    cpu, gpu = rig.device.cpu, rig.device.gpu
    reader, other = (cpu, gpu) if parameters["reader"] == "cpu" else (gpu, cpu)
    count = int(parameters["accesses"])
    other.fill(memory, 0, memory.nbytes, seed, "WF").result(RUN_TIMEOUT_S)
    start = rig.clock_ns()
    seen = reader.gather(memory, count, seed, STRIDE_BYTES, read).result(RUN_TIMEOUT_S)
    ns = rig.clock_ns() - start
    expected = other.gather(memory, count, seed, STRIDE_BYTES, "RA").result(RUN_TIMEOUT_S)
    return Sample({"access": ns / count}, seen == expected)


BENCHMARK = Benchmark(
    key="random_reads",
    prose="One agent reads seeded-random words, one cache line apart at least, from data the other wrote.",
    units={"access": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
)
