"""OpenCL memory under fork, drops and adoption of awkward memory; the parent's is never touched."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from umsh.backends import open_device
from umsh.backends.opencl.device import OpenCLDevice
from umsh.errors import AdoptError, DeviceError

Fork = Callable[[Callable[[], object]], str]
PAGE = mmap.PAGESIZE


@pytest.fixture(scope="module")
def device() -> OpenCLDevice:
    try:
        opened = open_device("opencl:0")
    except DeviceError as error:
        pytest.skip(f"no OpenCL device: {error}")
    assert isinstance(opened, OpenCLDevice)
    return opened


def maps() -> int:
    return len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(
    "use",
    ["open", "allocate", "fill", "echo", "record", "adopt"],
)
def test_a_forked_child_gets_an_error_at_once(device: OpenCLDevice, fork: Fork, use: str) -> None:
    """PoCL hangs in a forked child, https://github.com/google/gvisor/pull/14031"""
    memory = device.allocate("system", 4096, "4k")
    array = np.zeros(1024, np.uint32)
    uses: dict[str, Callable[[], object]] = {
        "open": lambda: open_device("opencl:0"),
        "allocate": lambda: device.allocate("system", 4096, "4k"),
        "fill": lambda: device.gpu.fill(memory, 0, 4096, 1, "WF"),
        "echo": lambda: device.cpu.echo(memory, 1, True),
        "record": lambda: device.stream().record(),
        "adopt": lambda: device.adopt("system", array.ctypes.data, array.nbytes, array),
    }
    told = fork(uses[use])
    assert told.startswith("DeviceError"), told
    assert "spawn" in told


def test_a_childs_end_frees_nothing_of_the_parents(device: OpenCLDevice, fork: Fork) -> None:
    """https://github.com/google/gvisor/pull/14031: finalisers of a child must not reach the driver."""
    made = [
        device.allocate(kind.name, 1 << 16, kind.pages[0])
        for kind in device.memory_kinds()
        if not kind.absent and kind.name != "copy"
    ]
    for memory in made:
        device.cpu.fill(memory, 0, 1 << 16, 1, "WF").result(30)

    def end() -> None:
        for memory in made:
            memory.free()
        made.clear()
        gc.collect()

    assert fork(end) == "ok"
    for memory in made:
        assert device.gpu.check(memory, 0, 1 << 16, 1, "RI").result(30) == 0, memory.kind.name
        device.cpu.fill(memory, 0, 1 << 16, 2, "WF").result(30)  # copy-on-write has not moved the GPU's view
        assert device.gpu.check(memory, 0, 1 << 16, 2, "RI").result(30) == 0, memory.kind.name


def test_a_child_that_ends_by_the_interpreter_does_not_hang() -> None:
    script = """
import os
from umsh.backends import open_device
device = open_device("opencl:0")
memories = [device.allocate(k.name, 4096, k.pages[0]) for k in device.memory_kinds() if not k.absent]
device.gpu.fill(memories[0], 0, 4096, 1, "WF").result(30)
pid = os.fork()
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    device.gpu.fill(memories[0], 0, 4096, 2, "WF").result(30)
    print("parent works")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "parent works\n", done.stderr


def test_mappings_stay_flat_over_many_rounds(device: OpenCLDevice) -> None:
    """The leak of split mappings of https://github.com/kvcache-ai/Mooncake/pull/3660, fewer rounds."""
    kinds = [kind for kind in device.memory_kinds() if not kind.absent]

    def rounds(count: int) -> None:
        for i in range(count):
            for kind in kinds:
                memory = device.allocate(kind.name, 4096 * (1 + i % 7), kind.pages[0])
                if i % 2:
                    memory.free()

    rounds(50)
    gc.collect()
    before = maps()
    rounds(500)
    gc.collect()
    assert maps() <= before + 8


def test_memory_dropped_while_a_kernel_uses_it_lives_until_the_kernel_ends(device: OpenCLDevice) -> None:
    """https://github.com/ml-explore/mlx/issues/3645: freed under a running kernel, the heap was corrupted."""
    for _ in range(5):
        memory = device.allocate("system", 4096, "4k")
        device.gpu.echo(memory, 10, False)  # result and memory dropped while it waits
        del memory
        others = [device.allocate("system", 4096, "4k") for _ in range(8)]
        for other in others:
            device.gpu.fill(other, 0, 4096, 3, "WF").result(30)
            assert device.cpu.check(other, 0, 4096, 3, "RI").result(30) == 0


# Awkward memory: https://github.com/vllm-project/vllm-omni/pull/6240 and the reports like it.


def file_of(tmp_path: Path, nbytes: int = 2 * PAGE) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(nbytes))
    return path


def test_a_read_only_file_map_is_refused_with_its_mode(device: OpenCLDevice, tmp_path: Path) -> None:
    with file_of(tmp_path).open("rb") as file:
        array = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
        with pytest.raises(AdoptError, match="r--"):
            device.adopt("system", array.ctypes.data, array.nbytes, array)


@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE, mmap.MAP_SHARED])
def test_a_writable_file_map_works(device: OpenCLDevice, tmp_path: Path, flags: int) -> None:
    path = file_of(tmp_path)
    with path.open("r+b") as file:
        array = np.frombuffer(mmap.mmap(file.fileno(), 0, flags=flags), np.uint8)
    memory = device.adopt("system", array.ctypes.data, array.nbytes, array)
    device.gpu.fill(memory, 0, array.nbytes, 1, "WF").result(30)
    assert device.cpu.check(memory, 0, array.nbytes, 1, "RI").result(30) == 0
    assert (path.read_bytes() != bytes(array.nbytes)) == (flags == mmap.MAP_SHARED)


def test_a_range_partly_unmapped_is_refused(device: OpenCLDevice) -> None:
    with mmap.mmap(-1, 4 * PAGE) as area:
        array = np.frombuffer(area, np.uint8)
        address = array.ctypes.data
        with pytest.raises(AdoptError, match="does not qualify"):
            device.adopt("system", address, 1 << 46, array)
        del array


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_an_unaligned_slice_is_refused(device: OpenCLDevice, offset: int) -> None:
    array = np.zeros(4096, np.uint8)[offset:]
    with pytest.raises(AdoptError, match="aligned"):
        device.adopt("system", array.ctypes.data, array.nbytes, array)


@pytest.mark.parametrize(("address", "nbytes"), [(0, 4096), (4096, 0), (1 << 20, 4)])
def test_what_is_no_memory_is_refused(device: OpenCLDevice, address: int, nbytes: int) -> None:
    with pytest.raises(AdoptError):
        device.adopt("system", address, nbytes, None)


def test_one_word_inside_an_array_leaves_its_neighbours(device: OpenCLDevice) -> None:
    array = np.full(64, 7, np.uint32)
    word = array[32:33]
    memory = device.adopt("system", word.ctypes.data, word.nbytes, array)
    device.gpu.fill(memory, 0, 4, 1, "WF").result(30)
    assert np.count_nonzero(array != 7) == 1
    memory.free()
    assert array[32] != 7  # the bytes are the caller's and stay


def test_adopted_memory_keeps_its_owner(device: OpenCLDevice) -> None:
    array = np.zeros(1 << 16, np.uint8)
    memory = device.adopt("system", array.ctypes.data, array.nbytes, array)
    del array
    gc.collect()
    device.gpu.fill(memory, 0, 1 << 16, 1, "WF").result(30)
    assert device.cpu.check(memory, 0, 1 << 16, 1, "RI").result(30) == 0


@pytest.mark.parametrize("kind", ["svm", "usm-host", "nosuch"])
def test_only_plain_memory_is_adopted(device: OpenCLDevice, kind: str) -> None:
    array = np.zeros(4096, np.uint8)
    with pytest.raises(AdoptError, match="does not qualify"):
        device.adopt(kind, array.ctypes.data, array.nbytes, array)


def test_dev_shm_works(device: OpenCLDevice) -> None:
    from multiprocessing import shared_memory

    shared = shared_memory.SharedMemory(create=True, size=4096)
    try:
        array = np.ndarray(4096, np.uint8, shared.buf)
        memory = device.adopt("system", array.ctypes.data, 4096, array)
        device.gpu.fill(memory, 0, 4096, 1, "WF").result(30)
        assert array.any()
        del array, memory
        gc.collect()
    finally:
        shared.close()
        shared.unlink()


def test_a_handle_of_a_process_that_ended_is_refused(device: OpenCLDevice) -> None:
    script = """
import json
from umsh.backends import open_device
device = open_device("opencl:0")
memory = device.allocate("system", 4096, "4k", shared=True)
print(json.dumps(dict(memory.share())))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    import json

    handle = json.loads(done.stdout)
    assert handle["pid"] != os.getpid()
    with pytest.raises(DeviceError, match="cannot be reached"):
        device.attach(handle)


def test_handing_over_behind_a_copy_that_waits_does_not_wait(device: OpenCLDevice) -> None:
    """T4. Dropping pyopencl's event of a copy waits with the GIL held: a process of its own tries it."""
    code = """
import numpy as np, pyopencl as cl, umsh
region = umsh.bind(4096, "u1", device="opencl:0", mechanism="copy.4k:copy/copy")
context = region.device.context
queue, gate = cl.CommandQueue(context), cl.UserEvent(context)
cl.enqueue_barrier(queue, wait_for=[gate])
umsh.write(region, np.ones(4096, "u1"), stream=queue)
with region.on_gpu(stream=queue):
    pass
gate.set_status(cl.command_execution_status.COMPLETE)
print(umsh.read(region, timeout_s=30).sum())
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (told.stdout, told.stderr) == ("4096\n", "")


@pytest.mark.parametrize("kind", ["svm", "system"])
def test_a_process_may_end_while_our_own_kernel_runs(device: OpenCLDevice, kind: str) -> None:
    if missing := device.missing(kind):
        pytest.skip(missing)
    code = f"""
from umsh.backends import open_device
device = open_device("opencl:0")
memory = device.allocate({kind!r}, 1 << 28, {device.pages_of(kind)!r})
pending = device.gpu.fill(memory, 0, 1 << 28, 1, "WA")
word = device.allocate({kind!r}, 4096, {device.pages_of(kind)!r})
waiting = device.gpu.echo(word, 1, False)
"""
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr.decode()[-2000:]
