"""One hand-over of data: the writer fills and publishes, the reader reads and checks every word."""

from __future__ import annotations

from umsh.backends.driver import Agent, Device, Memory
from umsh.mechanism import Mechanism
from umsh.microbench.definition import RUN_TIMEOUT_S, Rig, Sample, Unit

UNITS: dict[str, Unit] = {"time": "ns", "ready": "ns"}


def hand_over(rig: Rig, mechanism: Mechanism, direction: str, nbytes: int, passes: int) -> Sample:
    """time: from the first write to the end of the last read. ready: from the data's publication on.

    A copy counts as part of both. The passes are enqueued back to back, as an application's kernels are.
    """
    device, seed = rig.device, rig.next_seed()
    memory = rig.memory(mechanism.memory, mechanism.pages, nbytes)
    writer, reader = agents(device, direction)
    read_method = "RA" if mechanism.read == "copy" else mechanism.read
    start = rig.clock_ns()
    write_method = "WA" if mechanism.write == "copy" else mechanism.write
    writer.fill(memory, 0, nbytes, seed, write_method).result(RUN_TIMEOUT_S)
    published = rig.clock_ns()
    if mechanism.write == "copy":
        _copy(device, memory, direction, nbytes)
    reads = [reader.check(memory, 0, nbytes, seed, read_method) for _ in range(passes)]
    wrong = sum(read.result(RUN_TIMEOUT_S) for read in reads)
    end = rig.clock_ns()
    return Sample({"time": float(end - start), "ready": float(end - published)}, wrong == 0)


def _copy(device: Device, memory: Memory, direction: str, nbytes: int) -> None:
    move = memory.upload if direction == "cpu->gpu" else memory.download
    event = move(0, nbytes, device.stream())
    if event is not None:
        event.wait(RUN_TIMEOUT_S)


def agents(device: Device, direction: str) -> tuple[Agent, Agent]:
    """(writer, reader) of a direction."""
    return (device.cpu, device.gpu) if direction == "cpu->gpu" else (device.gpu, device.cpu)
