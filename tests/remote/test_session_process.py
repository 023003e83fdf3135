"""The session process on the software device: memory, faults, limits, and order when every step is late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_freed_memory_is_used_again_and_freed_addresses_are_refused(software: Any) -> None:
    software.check("""
start()
free, total = c_size_t(), c_size_t()
for nbytes in (1000, 3 << 20):
    seen = set()
    for _ in range(40):
        address = alloc(nbytes)
        upload(address + nbytes - 4, b"last")
        assert download(address + nbytes - 4, 4) == b"last"
        seen.add(address)
        ok(cu.cuMemFree_v2(c_uint64(address)))
    assert len(seen) < 40, "nothing was used again"
    to = ctypes.create_string_buffer(4)
    assert cu.cuMemcpyDtoH_v2(to, c_uint64(address), c_size_t(4)) == 1
for _ in range(30):
    ok(cu.cuMemFree_v2(c_uint64(alloc(100 << 20))))
ok(cu.cuMemGetInfo_v2(byref(free), byref(total)))
assert 0 < free.value <= total.value
""")


def test_ranges_end_where_the_allocation_ends(software: Any) -> None:
    software.check("""
start()
address, other = alloc(1000), alloc(1000)
to = ctypes.create_string_buffer(2000)
for at, nbytes in ((address, 1001), (address + 999, 2), (address - 1, 1), (address, 1 << 60)):
    assert cu.cuMemcpyDtoH_v2(to, c_uint64(at), c_size_t(min(nbytes, 2000))) == 1, (at - address, nbytes)
ok(cu.cuMemsetD8_v2(c_uint64(address), 7, c_size_t(1000)))
assert download(address, 1000) == b"\\x07" * 1000
ok(cu.cuMemsetD8_v2(c_uint64(address), 7, c_size_t(1001)))
assert cu.cuMemcpyDtoH_v2(to, c_uint64(other), c_size_t(1)) == 1
assert download(other, 1) == bytes(1)
""")


def test_too_much_memory_fails_that_call_only(start_software: Callable[..., Any]) -> None:
    start_software("--memory-limit", str(64 << 20)).check("""
start()
address = c_uint64()
total = c_size_t()
ok(cu.cuDeviceTotalMem_v2(byref(total), 0))
assert total.value == 64 << 20
assert cu.cuMemAlloc_v2(byref(address), c_size_t(65 << 20)) == 2
small = alloc(100)
large = alloc(20 << 20)
assert cu.cuMemAlloc_v2(byref(address), c_size_t(40 << 20)) == 2
ok(cu.cuMemFree_v2(c_uint64(large)))
assert alloc(20 << 20)
upload(small, b"x")
assert download(small, 1) == b"x"
assert cu.cuMemAlloc_v2(byref(address), c_size_t((1 << 64) - 1)) == 2
""")


def test_a_fault_of_a_kernel_stays_and_is_this_clients_alone(software: Any) -> None:
    software.check("""
start()
function_before = function("none")
kernel, address, to = function("fault"), alloc(8), ctypes.create_string_buffer(8)
ok(launch(kernel, []))
assert cu.cuMemcpyDtoH_v2(to, c_uint64(address), c_size_t(8)) == 700
assert cu.cuMemAlloc_v2(byref(c_uint64()), c_size_t(8)) == 700
assert cu.cuCtxSynchronize() == 700 and launch(function_before, []) == 700
name = ctypes.c_char_p()
ok(cu.cuGetErrorName(700, byref(name)))
assert name.value == b"CUDA_ERROR_ILLEGAL_ADDRESS"
""")
    software.check("start(); assert download(alloc(8), 8) == bytes(8)")


def test_memory_of_any_size_is_set_by_one_call(software: Any) -> None:
    """What a call works on at the device does not travel, and no limit of the wire is its limit."""
    software.check("""
start()
n = 64 << 20
address = alloc(n)
ok(cu.cuMemsetD8_v2(c_uint64(address), 7, c_size_t(n)))
assert download(address, n) == b"\\x07" * n
ok(cu.cuMemsetD32Async(c_uint64(address), 5, c_size_t(n // 4), None))
assert download(address + n - 4, 4) == bytes([5, 0, 0, 0])
""")


def test_downloads_under_way_need_a_piece_of_staging_each(software: Any) -> None:
    """Together they are larger than all staging, and none has begun when the last is asked for."""
    software.check("""
import threading
start()
n = 32 << 20
address, host, on = alloc(n), pinned(n), stream()
ctypes.memset(host, 7, n)
asked = threading.Event()
@ctypes.CFUNCTYPE(None, c_void_p)
def hold(_):
    asked.wait(30)
ok(cu.cuLaunchHostFunc(on, hold, None))
for _ in range(40):
    ok(cu.cuMemcpyDtoHAsync_v2(host, c_uint64(address), c_size_t(n), on))
asked.set()
ok(cu.cuStreamSynchronize(on))
assert host.raw == bytes(n)
""")


ORDER = """
start()
n, rounds = 1 << 16, 25
first, second = stream(), stream()
a, b = alloc(n), alloc(n)
host, back = pinned(n), pinned(n)
event = c_void_p()
ok(cu.cuEventCreate(byref(event), 0))
copy = function("copy_8_8_8")
seen = []
@ctypes.CFUNCTYPE(None, c_void_p)
def note(i):
    seen.append((i, back.raw[:1]))
for i in range(1, rounds + 1):
    ctypes.memset(host, i, n)
    ok(cu.cuMemcpyHtoDAsync_v2(c_uint64(a), host, c_size_t(n), first))
    ok(cu.cuEventRecord(event, first))
    ok(cu.cuStreamWaitEvent(second, event, 0))
    ok(launch(copy, [word(b), word(a), word(n)], second))
    ok(cu.cuMemcpyDtoHAsync_v2(back, c_uint64(b), c_size_t(n), second))
    ok(cu.cuLaunchHostFunc(second, note, c_void_p(i)))
    ok(cu.cuStreamSynchronize(second))
    assert back.raw == bytes([i]) * n, i
assert seen == [(i, bytes([i])) for i in range(1, rounds + 1)]
"""


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("mode", ["full", "naive"])
def test_the_order_of_streams_holds_when_every_step_is_late(
    start_software: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, seed: int, mode: str
) -> None:
    monkeypatch.setenv("UMSH_SOFTWARE_DELAY_US", "2000")
    monkeypatch.setenv("UMSH_SOFTWARE_SEED", str(seed))
    start_software().check(ORDER, UMSH_REMOTE_MODE=mode)


def test_a_host_function_may_wait_for_another_thread_that_makes_calls(software: Any) -> None:
    """The executing thread must not wait with the stream: the other thread's calls go through it."""
    software.check("""
import threading
start()
current, ready = c_void_p(), threading.Event()
ok(cu.cuCtxGetCurrent(byref(current)))
@ctypes.CFUNCTYPE(None, c_void_p)
def wait(_):
    assert ready.wait(30)
def other():
    ok(cu.cuCtxSetCurrent(current))
    side = c_void_p()
    ok(cu.cuStreamCreate(byref(side), 1))
    ok(cu.cuMemsetD32Async(c_uint64(address), 5, c_size_t(1), side))
    to = pinned(4)
    ok(cu.cuMemcpyDtoHAsync_v2(to, c_uint64(address), c_size_t(4), side))
    ok(cu.cuStreamSynchronize(side))
    assert to.raw == (5).to_bytes(4, "little")
    ready.set()
address, on = alloc(4), c_void_p()
ok(cu.cuStreamCreate(byref(on), 1))
ok(cu.cuLaunchHostFunc(on, wait, None))
thread = threading.Thread(target=other); thread.start()
ok(cu.cuStreamSynchronize(on))
thread.join()
assert ready.is_set()
""")


def test_numba_runs_its_memory_on_the_software_device(software: Any) -> None:
    software.check("""
import numpy as np, sys
from numba import cuda
a = np.arange(1_000_000, dtype=np.float64)
on = cuda.stream()
held = cuda.to_device(a, stream=on)
assert (held.copy_to_host(stream=on) == a).all() and cuda.list_devices()[0].name == b"umsh software device"
""", LD_LIBRARY_PATH=str(software.library.parent))  # fmt: skip


def test_libraries_and_globals(software: Any) -> None:
    software.check("""
start()
image = module_text("dump_8_8", "none") + b"global counter 64\\n"
library, kernel, found, module = c_void_p(), c_void_p(), c_void_p(), c_void_p()
ok(cu.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0))
ok(cu.cuLibraryGetKernel(byref(kernel), library, b"dump_8_8"))
ok(cu.cuKernelGetFunction(byref(found), kernel))
count = c_uint()
ok(cu.cuLibraryGetKernelCount(byref(count), library))
assert count.value == 2
ok(cu.cuModuleLoadData(byref(module), image))
address, nbytes = c_uint64(), c_size_t()
ok(cu.cuModuleGetGlobal_v2(byref(address), byref(nbytes), module, b"counter"))
assert nbytes.value == 64
assert cu.cuModuleGetGlobal_v2(byref(address), byref(nbytes), module, b"none such") == 500
for callable in kernel, found:
    ok(launch(callable, [word(address.value), word(3)]))
    assert download(address.value, 16) == word(address.value) + word(3)
offset = c_size_t()
ok(cu.cuFuncGetParamInfo(found, 1, byref(offset), byref(nbytes)))
assert (offset.value, nbytes.value) == (8, 8)
assert cu.cuFuncGetParamInfo(found, 2, byref(offset), byref(nbytes)) == 1
name = ctypes.c_char_p()
ok(cu.cuKernelGetName(byref(name), kernel))
assert name.value == b"dump_8_8"
ok(cu.cuLibraryUnload(library))
ok(cu.cuModuleUnload(module))
""")
