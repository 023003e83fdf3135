"""GPU writes in place, CPU reads: time of one hand-over by mechanism, size and number of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from umsh.backends.driver import Device
from umsh.mechanism import Mechanism
from umsh.microbench.cpu_to_gpu import PASSES, PASSES_QUICK, SIZES
from umsh.microbench.definition import KIB, MIB, Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import mechanisms
from umsh.microbench.transfer import UNITS, hand_over

SIZES_QUICK = (4 * KIB, 256 * KIB, 4 * MIB)  # the CPU's own passes over more would take too long


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    sizes, passes = (SIZES_QUICK, PASSES_QUICK) if quick else (SIZES, PASSES)
    return [{"nbytes": n, "passes": p} for p in passes for n in sizes]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    return mechanisms(device, "gpu->cpu", int(parameters["nbytes"]))


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    nbytes, passes = int(parameters["nbytes"]), int(parameters["passes"])
    return hand_over(rig, Mechanism.parse(subject), "gpu->cpu", nbytes, passes)


BENCHMARK = Benchmark(
    key="gpu_to_cpu",
    prose="A kernel fills a region and publishes it; the CPU reads and checks every word by the read method.",
    units=UNITS,
    parameters=points,
    subjects=candidates,
    run=run,
    direction="gpu->cpu",
    ranks=True,
)
