"""Binding memory: time to allocate, prefault and verify the pages, by memory kind, page kind and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from umsh.backends.driver import Device
from umsh.microbench.definition import GIB, KIB, MIB, RUN_TIMEOUT_S, Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import page_kinds

SIZES = (4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 128 * MIB, 1 * GIB)
SIZES_QUICK = (4 * KIB, 256 * KIB, 16 * MIB)
WORDS_CHECKED = 256


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    return [{"nbytes": n} for n in (SIZES_QUICK if quick else SIZES)]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    return page_kinds(device, int(parameters["nbytes"]))


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """Allocate, look at words spread over it from the GPU (new memory reads as zero), free."""
    kind, _, pages = subject.rpartition(".")
    nbytes = int(parameters["nbytes"])
    start = rig.clock_ns()
    memory = rig.device.allocate(kind, nbytes, pages)
    bound = rig.clock_ns()
    # Of a copy the device's side is filled at the first hand-over, not at bind.
    reader = rig.device.cpu if kind == "copy" else rig.device.gpu
    words = reader.gather(memory, WORDS_CHECKED, rig.next_seed(), 4, "RA").result(RUN_TIMEOUT_S)
    backing = memory.backing
    freed = rig.clock_ns()
    memory.free()
    values = {"bind": float(bound - start), "unbind": float(rig.clock_ns() - freed)}
    return Sample(values, words == 0, _page_note(pages, backing.huge_bytes, backing.total_bytes))


def _page_note(pages: str, huge: int, total: int) -> str:
    if pages in ("thp", "hugetlb") and huge < total:
        return f"large pages back {huge} of {total} bytes"
    return ""


BENCHMARK = Benchmark(
    key="bind",
    prose="Allocate a region with its pages present and verified, then give it back. No data is moved.",
    units={"bind": "ns", "unbind": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    ranks=True,
)
