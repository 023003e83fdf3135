"""CPU writes in place, GPU reads: time of one hand-over by mechanism, size and number of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from umsh.backends.driver import Device
from umsh.mechanism import Mechanism
from umsh.microbench.definition import KIB, MIB, Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import mechanisms
from umsh.microbench.transfer import UNITS, hand_over

SIZES = (4 * KIB, 64 * KIB, 1 * MIB, 16 * MIB, 256 * MIB)
SIZES_QUICK = (4 * KIB, 4 * MIB, 32 * MIB)
# The later ones show from how many reads on a copy to device memory wins.
PASSES, PASSES_QUICK = (1, 4, 16), (1, 4)


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    sizes, passes = (SIZES_QUICK, PASSES_QUICK) if quick else (SIZES, PASSES)
    return [{"nbytes": n, "passes": p} for p in passes for n in sizes]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    return mechanisms(device, "cpu->gpu", int(parameters["nbytes"]))


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    nbytes, passes = int(parameters["nbytes"]), int(parameters["passes"])
    return hand_over(rig, Mechanism.parse(subject), "cpu->gpu", nbytes, passes)


BENCHMARK = Benchmark(
    key="cpu_to_gpu",
    prose="The CPU fills a region and publishes it; a kernel reads and checks every word by the read "
    "method, once a pass.",
    units=UNITS,
    parameters=points,
    subjects=candidates,
    run=run,
    direction="cpu->gpu",
    ranks=True,
)
