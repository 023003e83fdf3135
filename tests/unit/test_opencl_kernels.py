"""umsh.clh inside a user's own kernels, built by plain pyopencl, against the native verbs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from umsh.backends import open_device
from umsh.backends.driver import Memory
from umsh.backends.opencl.device import OpenCLDevice
from umsh.backends.opencl.stream import wait_event
from umsh.backends.pages import view
from umsh.device import INCLUDE
from umsh.errors import DeviceError
from umsh.native import lib

cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")

SECONDS = 30.0
SECOND_NS = 1_000_000_000
POLLS = 1 << 30
Launch = Callable[..., Any]

SOURCE = """
#include "umsh.clh"

__kernel void produce(__global uint *data, umsh_word *flag, uint n, int method) {
    for (uint i = 0; i < n; i++) umsh_write(&data[i], 3 * i, method);
    umsh_publish(method);
    umsh_set(flag, 1);
}

__kernel void consume(__global uint *data, umsh_word *flag, umsh_word *stop, uint n, int method,
                      __global uint *out, ulong polls) {
    out[0] = umsh_wait(flag, 1, umsh_within(stop, polls));
    umsh_refresh(method);
    uint sum = 0;
    for (uint i = 0; i < n; i++) sum += umsh_read(&data[i], method);
    out[1] = sum;
}

__kernel void consume_block(__global uint *data, umsh_word *flag, umsh_word *stop, __global uint *out,
                            ulong polls) {
    __local int seen;
    int reached = umsh_wait_block(flag, 1, umsh_within(stop, polls), &seen);
    out[get_global_id(0)] = reached == UMSH_OK ? data[get_global_id(0)] : 0xFFFFFFFFu;
}

__kernel void consume_grid(__global uint *data, umsh_word *flag, umsh_word *gate, umsh_word *stop,
                           __global uint *out, ulong polls) {
    __local int seen;
    int reached = umsh_wait_grid(flag, gate, 1, umsh_within(stop, polls), &seen);
    out[get_global_id(0)] = reached == UMSH_OK ? data[get_global_id(0)] : 0xFFFFFFFFu;
}

__kernel void lock_codes(umsh_word *lock, umsh_word *stop, int algorithm, __global int *out) {
    umsh_bound bound = umsh_within(stop, 1000);
    uint tag = UMSH_TAG_GPU | 1, other = UMSH_TAG_GPU | 2;
    out[0] = umsh_lock(lock, algorithm, tag, bound);
    out[1] = umsh_lock(lock, algorithm, tag, bound);
    out[2] = umsh_lock(lock, algorithm, other, bound);
    out[3] = umsh_unlock(lock, algorithm, other);
    out[4] = umsh_unlock(lock, algorithm, tag);
    out[5] = umsh_lock(lock, algorithm, other, bound);
    out[6] = umsh_unlock(lock, algorithm, other);
    out[7] = umsh_lock(lock, 9, tag, bound);
    out[8] = umsh_unlock(lock, 9, tag);
}

__kernel void words(umsh_word *word, __global uint *out) {
    out[0] = umsh_acquire(word);
    umsh_release(word, out[0] + 1);
    out[1] = umsh_exchange_if(word, 8, 20);
    out[2] = umsh_exchange_if(word, 8, 30);
}
"""


@pytest.fixture(scope="module")
def device() -> OpenCLDevice:
    try:
        opened = open_device("opencl:0")
    except DeviceError as error:
        pytest.skip(f"no OpenCL device: {error}")
    assert isinstance(opened, OpenCLDevice)
    if opened.missing("svm"):
        pytest.skip(f"no fine-grain SVM: {opened.missing('svm')}")
    return opened


@pytest.fixture(scope="module")
def launch(device: OpenCLDevice) -> Launch:
    """launch(name, items, group, *args): starts a kernel and gives its event."""
    options = ["-cl-std=CL3.0", *device.quirks.build_options, "-I", str(INCLUDE)]
    program = cl.Program(device.context, SOURCE).build(options)

    def start(name: str, items: int, group: int, *args: Any) -> Any:
        event = cl.Kernel(program, name)(device.stream().native, (items,), (group,), *args)
        device.stream().native.flush()
        return event

    return start


def words(device: OpenCLDevice, nbytes: int = 4096) -> tuple[Memory, Any]:
    memory = device.allocate("svm", nbytes, "driver")
    return memory, view(memory.address, nbytes).view(np.uint32)


@pytest.mark.parametrize("method", [0, 1, 2])
def test_the_cpu_reads_what_a_kernel_published_while_it_runs(
    device: OpenCLDevice, launch: Launch, method: int
) -> None:
    (data, seen), (flag, _) = words(device, 1 << 16), words(device)
    event = launch("produce", 1, 1, data.kernel_arg, flag.kernel_arg, np.uint32(1 << 14), np.int32(method))
    assert lib.umsh_flag_wait(flag.address, 1, 30 * SECOND_NS) == 0
    assert np.array_equal(seen, 3 * np.arange(1 << 14, dtype=np.uint32))
    wait_event(event, SECONDS)


@pytest.mark.parametrize("method", [0, 1, 2])
def test_a_kernel_reads_what_the_cpu_published_while_it_runs(
    device: OpenCLDevice, launch: Launch, method: int
) -> None:
    (data, bytes_), (flag, _), (stop, _), (out, got) = (words(device) for _ in range(4))
    event = launch("consume", 1, 1, data.kernel_arg, flag.kernel_arg, stop.kernel_arg, np.uint32(1024),
                   np.int32(method), out.kernel_arg, np.uint64(POLLS))  # fmt: skip
    bytes_[:] = np.arange(1024)
    lib.umsh_writeback_lines(data.address, data.nbytes)
    lib.umsh_flag_set(flag.address, 1)
    wait_event(event, SECONDS)
    assert list(got[:2]) == [0, 1023 * 512]


def test_every_item_of_a_block_sees_the_data_after_the_wait(device: OpenCLDevice, launch: Launch) -> None:
    (data, bytes_), (flag, _), (stop, _), (out, got) = (words(device) for _ in range(4))
    event = launch("consume_block", 256, 256, data.kernel_arg, flag.kernel_arg, stop.kernel_arg,
                   out.kernel_arg, np.uint64(POLLS))  # fmt: skip
    bytes_[:] = np.arange(1024) + 7
    lib.umsh_flag_set(flag.address, 1)
    wait_event(event, SECONDS)
    assert np.array_equal(got[:256], np.arange(256) + 7)


def test_every_item_of_a_grid_sees_the_data_after_the_wait(device: OpenCLDevice, launch: Launch) -> None:
    groups = device.quirks.groups_max or device.native.max_compute_units
    (data, bytes_), (flag, _), (gate, _), (stop, _), (out, got) = (words(device) for _ in range(5))
    event = launch("consume_grid", 32 * groups, 32, data.kernel_arg, flag.kernel_arg, gate.kernel_arg,
                   stop.kernel_arg, out.kernel_arg, np.uint64(POLLS))  # fmt: skip
    bytes_[:] = np.arange(1024) + 7
    lib.umsh_flag_set(flag.address, 1)
    wait_event(event, SECONDS)
    assert np.array_equal(got[: 32 * groups], np.arange(32 * groups) + 7)


def test_a_wait_ends_by_its_polls(device: OpenCLDevice, launch: Launch) -> None:
    (data, _), (flag, _), (stop, _), (out, got) = (words(device) for _ in range(4))
    event = launch("consume", 1, 1, data.kernel_arg, flag.kernel_arg, stop.kernel_arg, np.uint32(1),
                   np.int32(0), out.kernel_arg, np.uint64(5000))  # fmt: skip
    wait_event(event, SECONDS)
    assert got[0] == 1


def test_a_wait_ends_by_its_stop_word(device: OpenCLDevice, launch: Launch) -> None:
    (data, _), (flag, _), (stop, stopping), (out, got) = (words(device) for _ in range(4))
    event = launch("consume", 1, 1, data.kernel_arg, flag.kernel_arg, stop.kernel_arg, np.uint32(1),
                   np.int32(0), out.kernel_arg, np.uint64(1 << 60))  # fmt: skip
    stopping[0] = 1
    wait_event(event, SECONDS)
    assert got[0] == 1


def test_a_flag_that_ran_ahead_counts_as_reached(device: OpenCLDevice, launch: Launch) -> None:
    """Values count upwards, so a setter that runs ahead loses no wake-up."""
    (data, _), (flag, value), (stop, _), (out, got) = (words(device) for _ in range(4))
    value[0] = 5
    event = launch("consume", 1, 1, data.kernel_arg, flag.kernel_arg, stop.kernel_arg, np.uint32(1),
                   np.int32(0), out.kernel_arg, np.uint64(1))  # fmt: skip
    wait_event(event, SECONDS)
    assert got[0] == 0


@pytest.mark.parametrize("algorithm", [0, 1, 2])
def test_lock_codes(device: OpenCLDevice, launch: Launch, algorithm: int) -> None:
    """Taken, taken twice by the same item, refused, wrong holder, given back, taken by the other."""
    (lock, _), (stop, _), (out, got) = (words(device) for _ in range(3))
    event = launch("lock_codes", 1, 1, lock.kernel_arg, stop.kernel_arg, np.int32(algorithm), out.kernel_arg)
    wait_event(event, SECONDS)
    codes = got[:9].view(np.int32).tolist()
    assert codes == [0, 3, 1, 1, 0, 0, 0, -22, -22]
    # A waiter that gave up has left the lock usable for the CPU too.
    tag = lib.umsh_own_tag()
    assert lib.umsh_lock_acquire(lock.address, algorithm, tag, SECOND_NS) == 0
    assert lib.umsh_lock_release(lock.address, algorithm, tag) == 0


@pytest.mark.parametrize("algorithm", [0, 1, 2])
def test_a_lock_the_cpu_holds_keeps_a_kernel_out(
    device: OpenCLDevice, launch: Launch, algorithm: int
) -> None:
    (lock, _), (stop, _), (out, got) = (words(device) for _ in range(3))
    tag = lib.umsh_own_tag()
    assert lib.umsh_lock_acquire(lock.address, algorithm, tag, SECOND_NS) == 0
    event = launch("lock_codes", 1, 1, lock.kernel_arg, stop.kernel_arg, np.int32(algorithm), out.kernel_arg)
    wait_event(event, SECONDS)
    assert got[0] == 1
    assert lib.umsh_lock_release(lock.address, algorithm, tag) == 0


def test_words(device: OpenCLDevice, launch: Launch) -> None:
    (word, value), (out, got) = words(device), words(device)
    value[0] = 7
    wait_event(launch("words", 1, 1, word.kernel_arg, out.kernel_arg), SECONDS)
    assert (got[:3].tolist(), value[0]) == ([7, 1, 0], 20)


def test_waiting_leaves_other_python_threads_running(device: OpenCLDevice, launch: Launch) -> None:
    """A kernel that waits for another Python thread: a wait that holds the GIL would never end."""
    (data, _), (flag, _), (stop, _), (out, got) = (words(device) for _ in range(4))
    event = launch("consume", 1, 1, data.kernel_arg, flag.kernel_arg, stop.kernel_arg, np.uint32(1),
                   np.int32(0), out.kernel_arg, np.uint64(POLLS))  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        setter = pool.submit(lambda: lib.umsh_flag_set(flag.address, 1))
        wait_event(event, SECONDS)
        setter.result(SECONDS)
    assert got[0] == 0
