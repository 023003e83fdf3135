"""Every driver's memory: zeroed, shared by both agents in every kind and method, bounded, returned."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from umsh.backends.driver import Agent, Device, Memory
from umsh.backends.pages import view
from umsh.errors import AdoptError, DeviceError, NeedError, OutOfMemory, UmshError, UnsupportedError

NBYTES = 3 * 4096 + 256  # no whole number of pages
SECONDS = 30.0


def present(device: Device) -> list[tuple[str, str]]:
    """Kinds on which every method must do; where nothing is coherent, litmus tests judge each method."""
    kinds = [kind for kind in device.memory_kinds() if kind.coherence != "none" or kind.name == "copy"]
    return [(kind.name, pages) for kind in kinds if not kind.absent for pages in kind.pages]


def allocate(device: Device, kind: str, pages: str, nbytes: int = NBYTES) -> Memory:
    try:
        return device.allocate(kind, nbytes, pages)
    except UnsupportedError as error:
        pytest.skip(f"{kind}.{pages}: {error}")


@pytest.fixture
def memories(device: Device) -> Iterator[list[Memory]]:
    made = [allocate(device, kind, pages) for kind, pages in present(device)]
    yield made
    for memory in made:
        memory.free()


def settle(memory: Memory, device: Device, up: bool) -> None:
    """Move the copy kind's bytes; other kinds have one memory and no event."""
    stream = device.stream()
    event = memory.upload(0, memory.nbytes, stream) if up else memory.download(0, memory.nbytes, stream)
    if event is not None:
        event.wait(SECONDS)


def methods(agent: Agent, kind: str, letter: str) -> list[str]:
    has = [name for name, missing in agent.methods().items() if not missing]
    return ["copy"] if kind == "copy" else [name for name in has if name.startswith(letter)]


def test_new_memory_is_zero_for_both_agents(memories: list[Memory], device: Device) -> None:
    for memory in memories:
        if device.provenance == "measured":
            assert not view(memory.address, memory.nbytes).any(), memory.kind.name
        settle(memory, device, up=True)
        read = "copy" if memory.kind.name == "copy" else "RA"
        total = device.gpu.gather(memory, 64, 1, 128, read).result(SECONDS)
        assert total == 0, memory.kind.name


def test_gpu_sees_what_the_cpu_wrote_by_every_method(memories: list[Memory], device: Device) -> None:
    for memory in memories:
        name = memory.kind.name
        for seed, write in enumerate(methods(device.cpu, name, "W"), 1):
            for read in methods(device.gpu, name, "R"):
                device.cpu.fill(memory, 0, NBYTES, seed, write).result(SECONDS)
                settle(memory, device, up=True)
                wrong = device.gpu.check(memory, 0, NBYTES, seed, read).result(SECONDS)
                assert wrong == 0, f"{name}:{write}/{read}"


def test_cpu_sees_what_the_gpu_wrote_by_every_method(memories: list[Memory], device: Device) -> None:
    for memory in memories:
        name = memory.kind.name
        for seed, write in enumerate(methods(device.gpu, name, "W"), 1):
            for read in methods(device.cpu, name, "R"):
                device.gpu.fill(memory, 0, NBYTES, seed, write).result(SECONDS)
                settle(memory, device, up=False)
                wrong = device.cpu.check(memory, 0, NBYTES, seed, read).result(SECONDS)
                assert wrong == 0, f"{name}:{write}/{read}"


def test_check_counts_every_wrong_word(memories: list[Memory], device: Device) -> None:
    for memory in memories:
        name = memory.kind.name
        device.cpu.fill(memory, 0, NBYTES, 1, methods(device.cpu, name, "W")[0]).result(SECONDS)
        settle(memory, device, up=True)
        for agent in (device.cpu, device.gpu):
            read = methods(agent, name, "R")[0]
            assert agent.check(memory, 0, NBYTES, 2, read).result(SECONDS) == NBYTES // 4, name


def test_a_fill_touches_its_range_only(memories: list[Memory], device: Device) -> None:
    first, middle = 1024, 2048
    for memory in memories:
        name = memory.kind.name
        for agent, other, up in ((device.cpu, device.gpu, True), (device.gpu, device.cpu, False)):
            write, read = methods(agent, name, "W")[0], methods(other, name, "R")[0]
            agent.fill(memory, 0, NBYTES, 1, write).result(SECONDS)
            agent.fill(memory, first, middle, 2, write).result(SECONDS)
            settle(memory, device, up)
            assert other.check(memory, 0, first, 1, read).result(SECONDS) == 0, name
            assert other.check(memory, first, middle, 2, read).result(SECONDS) == 0, name
            wrong = other.check(memory, 0, NBYTES, 1, read).result(SECONDS)
            assert wrong == middle // 4, name


def test_gather_reads_the_same_words_on_both_agents(memories: list[Memory], device: Device) -> None:
    for memory in memories:
        name = memory.kind.name
        device.cpu.fill(memory, 0, NBYTES, 5, methods(device.cpu, name, "W")[0]).result(SECONDS)
        settle(memory, device, up=True)
        sums = {
            agent.gather(memory, 500, 9, 64, methods(agent, name, "R")[0]).result(SECONDS)
            for agent in (device.cpu, device.gpu)
        }
        assert len(sums) == 1, name


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(0, NBYTES + 4), (-4, 4), (NBYTES, 4), (2, 4), (0, 6), (0, -4)]
)
def test_ranges_outside_are_refused_whole(
    memories: list[Memory], device: Device, offset: int, nbytes: int
) -> None:
    """Bytes and elements confused must never give a partial transfer.

    https://github.com/dusty-nv/jetson-inference/issues/1369
    """
    for memory in memories:
        name = memory.kind.name
        for agent in (device.cpu, device.gpu):
            with pytest.raises(NeedError):
                agent.fill(memory, offset, nbytes, 1, methods(agent, name, "W")[0])
            with pytest.raises(NeedError):
                agent.check(memory, offset, nbytes, 1, methods(agent, name, "R")[0])
        if name == "copy" and (offset, nbytes) not in ((2, 4), (0, 6)):
            with pytest.raises(NeedError):
                memory.upload(offset, nbytes, device.stream())
            with pytest.raises(NeedError):
                memory.download(offset, nbytes, device.stream())


@pytest.mark.parametrize("stride", [0, -4, 6, NBYTES + 4])
def test_a_gather_needs_a_stride_inside(memories: list[Memory], device: Device, stride: int) -> None:
    for memory in memories:
        for agent in (device.cpu, device.gpu):
            with pytest.raises(NeedError):
                agent.gather(memory, 1, 1, stride, methods(agent, memory.kind.name, "R")[0])


def test_backing_tells_the_pages(memories: list[Memory]) -> None:
    for memory in memories:
        backing = memory.backing
        assert backing.source, memory.kind.name
        assert backing.huge_bytes >= 0, memory.kind.name
        assert backing.total_bytes == memory.nbytes, memory.kind.name


def test_free_twice_is_free_once(device: Device) -> None:
    for kind, pages in present(device):
        memory = allocate(device, kind, pages)
        memory.free()
        memory.free()


@pytest.mark.parametrize("nbytes", [0, -1])
def test_no_bytes_is_a_need_error(device: Device, nbytes: int) -> None:
    for kind, pages in present(device):
        with pytest.raises(NeedError):
            device.allocate(kind, nbytes, pages)


def test_more_than_the_machine_has_is_refused_whole(device: Device) -> None:
    _, total, _ = device.memory_info()
    for kind, pages in present(device):
        if pages != "hugetlb":
            with pytest.raises(OutOfMemory):
                device.allocate(kind, 4 * total, pages)


def test_unknown_kinds_and_pages_name_what_there_is(device: Device) -> None:
    with pytest.raises(UnsupportedError):
        device.allocate("holographic", 4096, "driver")
    for kind in device.memory_kinds():
        with pytest.raises(UmshError):
            device.allocate(kind.name, 4096, "1g")
        if kind.absent:
            with pytest.raises(UnsupportedError, match=kind.absent.split()[0]):
                device.allocate(kind.name, 4096, kind.pages[0])


def shared_kinds(device: Device) -> list[tuple[str, str, Memory]]:
    made = []
    for kind, pages in present(device):
        try:
            made.append((kind, pages, device.allocate(kind, NBYTES, pages, shared=True)))
        except UnsupportedError:
            continue
    return made


CHILD = """
import json, sys
from umsh.backends import open_device

name, handle, nbytes, seed = json.loads(sys.argv[1])
device = open_device(name)
memory = device.attach(handle)
print(device.gpu.check(memory, 0, nbytes, seed, "RA").result(30))
device.gpu.fill(memory, 0, nbytes, seed + 1, "WF").result(30)
"""


def test_another_process_shares_the_same_bytes(device: Device) -> None:
    if device.provenance != "measured" or not (made := shared_kinds(device)):
        pytest.skip(f"driver {device.driver}: no memory that two processes can share")
    for kind, pages, memory in made:
        device.cpu.fill(memory, 0, NBYTES, 3, "WF").result(SECONDS)
        name = f"{device.driver}:{device.index}"
        told = json.dumps([name, dict(memory.share()), NBYTES, 3])
        child = [sys.executable, "-c", CHILD, told]
        done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout.strip() == "0", f"{kind}.{pages}: {done.stderr}"
        assert device.cpu.check(memory, 0, NBYTES, 4, "RI").result(SECONDS) == 0, f"{kind}.{pages}"
        memory.free()


def test_a_handle_outlived_is_a_device_error(device: Device) -> None:
    if device.provenance != "measured" or not (made := shared_kinds(device)):
        pytest.skip(f"driver {device.driver}: no memory that two processes can share")
    for _, _, memory in made:
        handle = dict(memory.share())
        memory.free()
        with pytest.raises(DeviceError, match="cannot be reached"):
            device.attach(handle)


def test_private_memory_makes_no_handle(memories: list[Memory]) -> None:
    for memory in memories:
        with pytest.raises(UnsupportedError, match="shared=True"):
            memory.share()


def test_adopted_memory_is_the_callers(device: Device) -> None:
    array = np.arange(5000, dtype=np.uint32)
    adopted = 0
    for kind, _ in present(device):
        try:
            memory = device.adopt(kind, array.ctypes.data, array.nbytes, array)
        except (AdoptError, UnsupportedError):
            continue
        adopted += 1
        write = methods(device.gpu, kind, "W")[0]
        device.gpu.fill(memory, 0, array.nbytes, 7, write).result(SECONDS)
        settle(memory, device, up=False)
        assert device.cpu.check(memory, 0, array.nbytes, 7, "RA").result(SECONDS) == 0
        memory.free()
        assert array[0] != array[1]  # still there, with what the GPU wrote
    if not adopted:
        pytest.skip(f"driver {device.driver}: adopts no memory")
