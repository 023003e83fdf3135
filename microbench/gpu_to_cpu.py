"""GPU writes in place, CPU reads: time of one hand-over by mechanism, size and number of passes."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.backends.driver import Device
from umsh.mechanism import Mechanism
from umsh.microbench.cpu_to_gpu import points
from umsh.microbench.definition import Benchmark, Parameters, Rig, Sample
from umsh.microbench.subjects import mechanisms
from umsh.microbench.transfer import UNITS, hand_over


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
