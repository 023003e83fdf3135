"""The verbs of umsh.cuh in kernels of CuPy RawKernel and numba-cuda, against the CPU's."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.backends.cuda.device import CudaDevice
from umsh.backends.delegate import Delegate

SECOND_NS = 1_000_000_000

SOURCE = r"""
#include "umsh.cuh"
extern "C" __global__ void answer(umsh_u32 *flag, umsh_u32 *back, umsh_u32 rounds) {
    for (umsh_u32 r = 1; r <= rounds; r++) {
        if (umsh_wait_block(flag, r, 5000000000ull, 0) != UMSH_WAIT_REACHED) return;
        umsh_set_block(back, r);
    }
}
extern "C" __global__ void give_up(umsh_u32 *flag, umsh_u32 *abort, int *result) {
    result[0] = umsh_wait(flag, 1, 100000000ull, 0);
    result[1] = umsh_wait(flag, 1, 20000000000ull, abort);
}
extern "C" __global__ void count(umsh_u32 *lock, int algorithm, umsh_u32 *counter, umsh_u32 rounds) {
    umsh_u32 tag = UMSH_TAG_GPU | (blockIdx.x + 1);
    for (umsh_u32 r = 0; r < rounds; r++) {
        if (umsh_lock_block(lock, algorithm, tag, 20000000000ull, 0) != UMSH_LOCK_OK) return;
        if (threadIdx.x == 0) *(volatile umsh_u32 *)counter += 1;
        umsh_unlock_block(lock, algorithm, tag);
    }
}
extern "C" __global__ void hints(umsh_u32 *p, umsh_u32 *bad) {
    umsh_u32 i = threadIdx.x;
    umsh_store_cg(p + i, i); umsh_store_wt(p + 256 + i, i);
    umsh_store_relaxed(p + 512 + i, i); p[768 + i] = i;
    umsh_publish(); umsh_refresh();
    if (umsh_load_cg(p + i) != i || umsh_load_cv(p + 256 + i) != i) atomicAdd(bad, 1u);
    if (umsh_load_relaxed(p + 512 + i) != i || p[768 + i] != i) atomicAdd(bad, 1u);
}
"""


@pytest.fixture(scope="module")
def kernels(device: CudaDevice) -> Any:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    module = cupy.RawModule(code=SOURCE, options=(f"-I{umsh.get_include()}", "-std=c++17"))
    return lambda name, grid, block, *args: module.get_function(name)(grid, block, args)


def test_wait_and_set_in_a_raw_kernel(device: CudaDevice, kernels: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    there, back = umsh.Flag(pollers=256, device="cuda:0"), umsh.Flag(device="cuda:0")
    kernels("answer", (1,), (256,), cupy.uint64(there.ptr), cupy.uint64(back.ptr), cupy.uint32(50))
    for number in range(1, 51):
        umsh.set(there, number)
        umsh.wait(back, number, timeout_s=5)


def test_a_lost_partner_and_an_abort_word_end_a_wait(device: CudaDevice, kernels: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    flag, abort = umsh.Flag(device="cuda:0"), umsh.Flag(device="cuda:0")
    result = cupy.full(2, 7, dtype="int32")
    timer = threading.Timer(0.5, umsh.set, (abort, 1))
    timer.start()
    kernels("give_up", (1,), (1,), cupy.uint64(flag.ptr), cupy.uint64(abort.ptr), result)
    assert result.get().tolist() == [1, 1]
    timer.join()


@pytest.mark.parametrize("algorithm", ["peterson", "delegated"])
def test_locks_that_no_read_modify_write_crosses(device: CudaDevice, kernels: Any, algorithm: str) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    from umsh.native import lib

    lock = device.allocate("pinned", 512, "driver")
    counter = device.allocate("pinned", 128, "driver")
    code = {"peterson": 2, "delegated": 3}[algorithm]
    delegate = Delegate(lock.address) if algorithm == "delegated" else None
    rounds = 300
    kernels(
        "count", (8,), (64,), cupy.uint64(lock.device_address), cupy.int32(code),
        cupy.uint64(counter.device_address), cupy.uint32(rounds),
    )  # fmt: skip
    done = int(lib.umsh_lock_rounds(lock.address, counter.address, rounds, code, 0, 20 * SECOND_NS))
    cupy.cuda.Device(0).synchronize()
    if delegate is not None:
        delegate.stop()
    assert done == rounds
    assert device.cpu.gather(counter, 1, 0, counter.nbytes, "RA").result(5) == 9 * rounds


def test_cache_operators_and_plain_accesses_agree(device: CudaDevice, kernels: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for kind in ("pinned", "managed"):
        memory = device.allocate(kind, 4096, "driver")
        bad = cupy.zeros(1, dtype="uint32")
        kernels("hints", (1,), (256,), cupy.uint64(memory.device_address), bad)
        assert int(bad[0]) == 0
        memory.free()


def test_numba_waits_sets_and_locks(numba_cuda: Any) -> None:
    cuda = numba_cuda
    if not hasattr(cuda, "CUSource"):
        pytest.skip("this numba-cuda cannot link CUDA C++ sources (no CUSource)")
    from umsh.device import numba_cuda as verbs

    @cuda.jit  # type: ignore[untyped-decorator]
    def answer(there: int, back: int, lock: int, counter: Any, rounds: int) -> None:
        tag = 0x80000000 | (cuda.blockIdx.x + 1)
        for number in range(1, rounds + 1):
            if verbs.wait(there, number, 5_000_000_000, 0) != 0:
                return
            if verbs.lock(lock, 2, tag, 5_000_000_000, 0) != 0:
                return
            counter[0] += 1
            verbs.unlock(lock, 2, tag)
            verbs.set(back, number)

    there, back = umsh.Flag(device="cuda:0"), umsh.Flag(device="cuda:0")
    lock = umsh.Lock(device="cuda:0")
    if lock.algorithm != "peterson":
        pytest.skip(f"the choice in force uses a {lock.algorithm} lock")
    counter = cuda.to_device(np.zeros(1, np.uint32))
    answer[1, 1](there.ptr, back.ptr, lock.ptr, counter, 20)
    for number in range(1, 21):
        umsh.set(there, number)
        umsh.wait(back, number, timeout_s=10)
        with lock:
            pass
    cuda.synchronize()
    assert counter.copy_to_host()[0] == 20
