"""File to GPU: a cold file into a region that a kernel then reads, beside mmap and two copies."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path

from umsh.backends.driver import Device, Memory
from umsh.mechanism import Mechanism
from umsh.microbench.definition import MIB, RUN_TIMEOUT_S, Benchmark, Parameters, Rig, Sample, real_only
from umsh.microbench.files import SEED, drop_cache, pattern_file
from umsh.microbench.subjects import mechanisms


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    return [{"nbytes": n} for n in ((16 * MIB,) if quick else (1 * MIB, 16 * MIB, 128 * MIB))]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    """Plain writes only: what the disk's own transfers land in needs no CPU write method."""
    found = mechanisms(device, "cpu->gpu", int(parameters["nbytes"]))
    return {name: missing for name, missing in found.items() if Mechanism.parse(name).write in ("WA", "copy")}


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """From opening the cold file to the end of a kernel that checked every word of it."""
    mechanism, nbytes = Mechanism.parse(subject), int(parameters["nbytes"])
    path = pattern_file(rig, nbytes)
    memory = rig.memory(mechanism.memory, mechanism.pages, nbytes)
    stayed = drop_cache(path)
    start = rig.clock_ns()
    note = _mmap_and_copy(rig, path, memory) if mechanism.write == "copy" else _direct(path, memory)
    read = "RA" if mechanism.read == "copy" else mechanism.read
    wrong = rig.device.gpu.check(memory, 0, nbytes, SEED, read).result(RUN_TIMEOUT_S)
    ns = rig.clock_ns() - start
    return Sample(
        {"time": float(ns)}, wrong == 0, note or (f"{stayed} bytes stayed cached" if stayed else "")
    )


def _direct(path: Path, memory: Memory) -> str:
    from umsh.native import read_file

    report = read_file(path, 0, memory.address, memory.nbytes)
    return "" if report.direct else f"read through the page cache: {report.fallback}"


def _mmap_and_copy(rig: Rig, path: Path, memory: Memory) -> str:
    """What people do today: map the file, copy it to CPU memory, enqueue a copy to the device's."""
    import numpy as np

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        ctypes.memmove(memory.address, view.ctypes.data, memory.nbytes)
        del view
    event = memory.upload(0, memory.nbytes, rig.device.stream())
    if event is not None:
        event.wait(RUN_TIMEOUT_S)
    return ""


BENCHMARK = Benchmark(
    key="file_to_gpu",
    prose="Read a file that is not in the page cache into a region; a kernel reads and checks every word.",
    units={"time": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    direction="cpu->gpu",
    applies=real_only,
    ranks=True,
)
