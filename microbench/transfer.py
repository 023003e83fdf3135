"""One hand-over of data: the writer fills and publishes, the reader reads and checks every word."""

from __future__ import annotations

from umsh.backends.driver import Agent, Device, Memory
from umsh.mechanism import Mechanism
from umsh.microbench.definition import RUN_TIMEOUT_S, Rig


def hand_over(rig: Rig, mechanism: Mechanism, direction: str, nbytes: int, passes: int) -> tuple[int, int]:
    """(ns from the first write to the end of the last read, words that were wrong)."""
    device, seed = rig.device, rig.next_seed()
    memory = rig.memory(mechanism.memory, mechanism.pages, nbytes)
    _, reader = agents(device, direction)
    read_method = "RA" if mechanism.read == "copy" else mechanism.read
    start = rig.clock_ns()
    send(device, memory, mechanism, direction, nbytes, seed)
    wrong = 0
    for _ in range(passes):
        wrong += reader.check(memory, 0, nbytes, seed, read_method).result(RUN_TIMEOUT_S)
    return rig.clock_ns() - start, wrong


def send(
    device: Device, memory: Memory, mechanism: Mechanism, direction: str, nbytes: int, seed: int
) -> None:
    """Fill and publish by the mechanism's write method; under "copy" also copy to the reader's side."""
    writer, _ = agents(device, direction)
    write_method = "WA" if mechanism.write == "copy" else mechanism.write
    writer.fill(memory, 0, nbytes, seed, write_method).result(RUN_TIMEOUT_S)
    if mechanism.write == "copy":
        stream = device.stream()
        move = memory.upload if direction == "cpu->gpu" else memory.download
        event = move(0, nbytes, stream)
        if event is not None:
            event.wait(RUN_TIMEOUT_S)


def agents(device: Device, direction: str) -> tuple[Agent, Agent]:
    """(writer, reader) of a direction."""
    return (device.cpu, device.gpu) if direction == "cpu->gpu" else (device.gpu, device.cpu)
