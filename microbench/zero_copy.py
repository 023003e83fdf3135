"""Zero-copy against the copy baseline in one run: time until the GPU sees the data, and memory it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from umsh.backends.driver import Device, Memory
from umsh.mechanism import Mechanism
from umsh.microbench.definition import MIB, RUN_TIMEOUT_S, Benchmark, Parameters, Rig, Sample, real_only
from umsh.microbench.subjects import mechanisms

RESIDENT = Path("/proc/self/statm")
SETTLE_POLLS, SETTLE_S = 50, 0.02


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    """Steady state, and once with fresh memory, where the resident bytes count the copies."""
    sizes = (64 * MIB,) if quick else (16 * MIB, 256 * MIB)
    return [*({"nbytes": n, "fresh": False} for n in sizes), {"nbytes": sizes[-1], "fresh": True}]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    """Every write method with the plain read: reading is not part of what is timed."""
    found = mechanisms(device, "cpu->gpu", int(parameters["nbytes"]))
    return {name: missing for name, missing in found.items() if Mechanism.parse(name).read in ("RA", "copy")}


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """Time of what umsh.write does: from an array of the caller's until a kernel may read; then it checks."""
    mechanism, nbytes = Mechanism.parse(subject), int(parameters["nbytes"])
    if not parameters["fresh"]:
        memory = rig.memory(mechanism.memory, mechanism.pages, nbytes)
        ns, wrong = _visible(rig, memory, mechanism, nbytes)
        return Sample({"visible": float(ns)}, wrong == 0)
    before = _settled_bytes()
    memory = rig.device.allocate(mechanism.memory, nbytes, mechanism.pages)
    try:
        ns, wrong = _visible(rig, memory, mechanism, nbytes)
        copies = (_resident_bytes() - before) / nbytes
    finally:
        memory.free()
    return Sample({"visible": float(ns), "copies": copies}, wrong == 0)


def _visible(rig: Rig, memory: Memory, mechanism: Mechanism, nbytes: int) -> tuple[int, int]:
    """(ns until visible, words that the kernel then found wrong)."""
    from umsh.methods import COPY_IN, PUBLISH
    from umsh.native import lib

    seed, source = rig.next_seed(), rig.source(nbytes)
    lib.umsh_fill(source.address, nbytes, seed, lib.UMSH_WRITE_ALONE)
    start = rig.clock_ns()
    if mechanism.write in COPY_IN:
        COPY_IN[mechanism.write](memory.address, source.address, nbytes)
    else:
        lib.umsh_copy(memory.address, source.address, nbytes)
        PUBLISH[mechanism.write](memory.address, nbytes)
    if mechanism.write == "copy":
        event = memory.upload(0, nbytes, rig.device.stream())
        if event is not None:
            event.wait(RUN_TIMEOUT_S)
    ns = rig.clock_ns() - start
    return ns, rig.device.gpu.check(memory, 0, nbytes, seed, "RA").result(RUN_TIMEOUT_S)


def _settled_bytes() -> int:
    """Resident bytes once drivers have given back what earlier runs freed; waits for at most a second."""
    now = _resident_bytes()
    for _ in range(SETTLE_POLLS):
        before = now
        time.sleep(SETTLE_S)
        now = _resident_bytes()
        if now == before:
            break
    return now


def _resident_bytes() -> int:
    return int(RESIDENT.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


BENCHMARK = Benchmark(
    key="zero_copy",
    prose="Write an array to a region until the GPU may read it, beside writing it and enqueuing a copy. "
    "Copies are resident bytes that fresh memory and its hand-over added, over the bytes of the data.",
    units={"visible": "ns", "copies": "count"},
    parameters=points,
    subjects=candidates,
    run=run,
    direction="cpu->gpu",
    applies=real_only,
    baselines=("copy.",),
)
