"""Public problem reports as tests on a real CUDA device."""

from __future__ import annotations

import gc
import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.backends.cuda.device import CudaDevice
from umsh.errors import (
    AdoptError,
    DeviceError,
    NeedError,
    OutOfMemory,
    RegionBusy,
    UmshError,
    UnsupportedError,
)

SLOW_MS = 200


def test_results_lie_in_memory_the_cpu_caches(device: CudaDevice) -> None:
    """https://github.com/dusty-nv/jetson-inference/issues/1369: results lay in uncached memory."""
    region = umsh.bind((1_000_000,), "float32", direction="gpu->cpu", source="gpu", device="cuda:0")
    kinds = {kind.name: kind for kind in device.memory_kinds()}
    assert kinds[region.effective.memory].cpu_policy == "WB"
    umsh.unbind(region)


@pytest.mark.parametrize("dtype", ["float64", "float16", [("x", "f4"), ("y", "u1"), ("z", "i8")]])
@pytest.mark.parametrize("count", [1, 7, 1000, 4097])
def test_every_length_comes_from_shape_and_dtype(device: CudaDevice, dtype: Any, count: int) -> None:
    """https://github.com/dusty-nv/jetson-inference/issues/1369: a quarter of the values was copied."""
    kind = np.dtype(dtype)
    data = np.frombuffer(np.random.default_rng(1).bytes(count * kind.itemsize), kind)
    with umsh.bind((count,), kind, direction="both", device="cuda:0") as region:
        umsh.write(region, data)
        assert umsh.read(region).tobytes() == data.tobytes()
        with pytest.raises(NeedError):
            umsh.write(region, data[:-1] if count > 1 else np.concatenate([data, data]))


def test_the_cpu_waits_for_the_gpu(device: CudaDevice, slow_kernel: Callable[..., None]) -> None:
    """https://github.com/ml-explore/mlx/issues/3645: an access while the GPU owns it."""
    region = umsh.bind((256,), "uint32", direction="both", device="cuda:0")
    other = umsh.bind((256,), "uint32", direction="both", device="cuda:0")
    with region.on_gpu() as g:
        slow_kernel(g.ptr, 256, SLOW_MS)
        with pytest.raises(RegionBusy):
            region.on_cpu().__enter__()
        with other.on_cpu(write=True) as free:
            free[:] = 9
    with region.on_cpu() as array:
        assert (array == 1).all()
    umsh.unbind(region)
    umsh.unbind(other)


def test_dropping_a_region_under_a_running_kernel(
    device: CudaDevice, slow_kernel: Callable[..., None]
) -> None:
    """https://github.com/NVIDIA/MatX/issues/1007: memory was freed under a running kernel."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    stream = cupy.cuda.Stream(non_blocking=True)
    region = umsh.bind((256,), "uint32", direction="both", device="cuda:0")
    with region.on_gpu(stream=stream) as g:
        slow_kernel(g.ptr, 256, SLOW_MS, stream)
    del region, g
    gc.collect()
    again = umsh.bind((256,), "uint32", direction="both", device="cuda:0")
    with again.on_cpu() as array:
        assert (array == 0).all()
    stream.synchronize()
    with again.on_cpu() as array:
        assert (array == 0).all()
    umsh.unbind(again)


class TestAwkwardMemory:
    """https://github.com/vllm-project/vllm-omni/pull/6240 and its kin: works, or says why not."""

    def bound(self, device: CudaDevice, memory: Any) -> str:
        """ "right" when the GPU reads what the CPU wrote there, else the error's type."""
        before = device.memory_info()[0]
        try:
            region = umsh.bind(memory=memory, direction="cpu->gpu", device="cuda:0")
        except (UmshError, ValueError, BufferError) as error:
            assert device.memory_info()[0] == before
            return type(error).__name__
        with region.on_cpu(write=True) as array:
            array.reshape(-1).view("u1")[:] = 7
        keeper = region._keeper.memory
        if keeper.nbytes % 4 == 0 and keeper.device_address % 4 == 0:
            words = np.frombuffer(b"\x07\x07\x07\x07", "u4")[0]
            count = keeper.nbytes // 4
            got = device.gpu.gather(keeper, 16, 3, 4, "RA").result(10)
            assert got == (int(words) * 16) & 0xFFFFFFFF, count
        umsh.unbind(region)
        return "right"

    def test_read_only_file_map(self, device: CudaDevice, tmp_path: Path) -> None:
        path = tmp_path / "f"
        path.write_bytes(bytes(1 << 20))
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        assert self.bound(device, mapped) == "AdoptError"

    def test_private_file_map(self, device: CudaDevice, tmp_path: Path) -> None:
        path = tmp_path / "f"
        path.write_bytes(bytes(1 << 20))
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
        assert self.bound(device, mapped) == "right"
        assert path.read_bytes() == bytes(1 << 20)

    def test_shared_memory_file(self, device: CudaDevice) -> None:
        from multiprocessing.shared_memory import SharedMemory

        shared = SharedMemory(create=True, size=1 << 20)
        try:
            assert self.bound(device, shared.buf) == "right"
        finally:
            gc.collect()
            shared.close()
            shared.unlink()

    def test_slice_that_is_not_aligned_to_pages(self, device: CudaDevice) -> None:
        whole = np.zeros(1 << 16, np.uint8)
        assert self.bound(device, whole[52 : 52 + 8000]) == "right"

    def test_one_byte_and_none(self, device: CudaDevice) -> None:
        assert self.bound(device, np.zeros(1, np.uint8)) in ("right", "AdoptError")
        assert self.bound(device, np.zeros(0, np.uint8)) in ("AdoptError", "NeedError")

    def test_memory_already_bound_and_overlapping(self, device: CudaDevice) -> None:
        array = np.zeros(1 << 16, np.uint8)
        region = umsh.bind(memory=array, direction="cpu->gpu", device="cuda:0")
        assert self.bound(device, array) == "AdoptError"
        assert self.bound(device, array[4096:8192]) == "AdoptError"
        umsh.unbind(region)
        assert self.bound(device, array) == "right"

    def test_huge_pages_ending_inside_one(self, device: CudaDevice) -> None:
        try:
            memory = device.allocate("registered", (4 << 20) - 4096, "hugetlb")
        except UnsupportedError as error:
            pytest.skip(f"no huge pages reserved: {error}")
        memory.free()

    def test_partly_unmapped_range(self, device: CudaDevice) -> None:
        mapped = mmap.mmap(-1, 1 << 16)
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        with pytest.raises(AdoptError):
            device.adopt("registered", address, 1 << 40, mapped)


def test_more_than_the_device_holds(device: CudaDevice) -> None:
    total = device.memory_info()[1]
    with pytest.raises(OutOfMemory):
        device.allocate("copy", 2 * total, "driver")
    device.allocate("copy", 4096, "driver").free()


def test_a_forked_child_gets_an_error_and_the_parent_stays_right(device: CudaDevice, fork: Any) -> None:
    """https://github.com/inducer/pycuda/issues/137: CUDA refuses to work in a forked child."""
    region = umsh.bind((1024,), "uint32", direction="cpu->gpu", device="cuda:0")

    def in_child() -> None:
        umsh.bind((1024,), "uint32", direction="cpu->gpu", device="cuda:0")

    assert fork(in_child).startswith("DeviceError")
    assert fork(lambda: umsh.write(region, np.zeros(1024, np.uint32))).startswith("TurnError")
    umsh.write(region, np.full(1024, 3, np.uint32))
    assert device.gpu.gather(region._keeper.memory, 16, 1, 4, "RA").result(10) == 48
    umsh.unbind(region)


def test_mappings_stay_flat_over_many_rounds(device: CudaDevice) -> None:
    """https://github.com/google/gvisor/pull/14031: each registration left split mappings behind."""

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    for size in range(1, 40):
        device.allocate("registered", size * 4096, "4k").free()
    before = mappings()
    for turn in range(2000):
        device.allocate("registered", (1 + turn % 40) * 4096, "4k").free()
    assert mappings() <= before + 8


def test_a_view_outlives_its_region(device: CudaDevice) -> None:
    """https://github.com/numpy/numpy/issues/18294: the view's memory was gone."""
    region = umsh.bind((4096,), "uint8", direction="both", device="cuda:0")
    with region.on_cpu(write=True) as array:
        array[:] = 6
        kept = array[3:].view("u1")
    del region, array
    gc.collect()
    assert int(kept.sum()) == 6 * 4093


def test_usable_memory_is_the_devices_own(device: CudaDevice) -> None:
    """https://github.com/vllm-project/vllm/issues/46932: a discrete card was taken for unified."""
    info = umsh.memory_info(device="cuda:0")
    if device.facts()["integrated"]:
        pytest.skip("INTEGRATED is 1: the figure follows reclaimable CPU memory")
    assert info.total_bytes == device.facts()["device_memory_bytes"]
    assert "cuMemGetInfo" in info.source or "device" in info.source


def test_a_kernel_that_fails_loses_the_device_for_this_process_only(child: Callable[[str], str]) -> None:
    told = child("""
        import umsh, cupy
        from umsh.backends import open_device
        device = open_device("cuda:0")
        memory = device.allocate("pinned", 4096, "driver")
        bad = cupy.RawKernel('extern "C" __global__ void f(int *p) { *p = 1; }', "f")
        bad((1,), (1,), (cupy.uint64(64),))
        try:
            device.gpu.check(memory, 0, 4096, 1, "RA").result(10)
        except umsh.errors.DeviceError as error:
            print("told:", error)
        memory.free()
    """)
    assert "told:" in told
    assert "context of this process is lost" in told


def test_a_kernel_that_never_returns_is_reported_and_dies_with_its_process(
    child: Callable[[str], str], device: CudaDevice
) -> None:
    start = time.monotonic()
    told = child("""
        import os, umsh, cupy
        stuck = cupy.RawKernel('extern "C" __global__ void f(volatile int *p) { while (*p == 0); }', "f")
        region = umsh.bind((64,), "int32", direction="both", device="cuda:0")
        try:
            with region.on_gpu(timeout_s=1) as g:
                stuck((1,), (1,), (cupy.uint64(g.ptr),))
        except umsh.errors.WaitTimeout as error:
            print("told:", error, flush=True)
        os._exit(0)
    """)
    assert "only ending this process frees the device" in told
    assert time.monotonic() - start < 60
    memory = device.allocate("pinned", 4096, "driver")
    device.cpu.fill(memory, 0, 4096, 1, "WA").result(5)
    assert device.gpu.check(memory, 0, 4096, 1, "RA").result(20) == 0


def test_two_processes_share_a_region_and_one_dies(device: CudaDevice, tmp_path: Path) -> None:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    region = umsh.bind((1 << 16,), "uint32", direction="both", shared=True, device="cuda:0")
    umsh.write(region, np.full(1 << 16, 4, np.uint32))
    queue: Any = context.Queue()
    process = context.Process(target=_attach_and_die, args=(region.share(), queue))
    process.start()
    assert queue.get(timeout=60) == 4 * 16
    process.join(30)
    assert process.exitcode == 1
    with region.on_cpu() as array:
        assert int(array[0]) == 11
    del array
    assert device.gpu.gather(region._keeper.memory, 4, 1, 1 << 18, "RA").result(10) == 44
    handle = region.share()
    umsh.unbind(region)
    gc.collect()
    with pytest.raises(DeviceError):
        umsh.attach(handle)


def _attach_and_die(handle: Any, queue: Any) -> None:
    import os

    from umsh.backends import open_device

    region = umsh.attach(handle)
    gpu = open_device("cuda:0").gpu
    queue.put(gpu.gather(region._keeper.memory, 16, 1, 4, "RA").result(20))
    queue.close()
    queue.join_thread()
    with region.on_cpu(write=True) as array:
        array[0] = 11
    os._exit(1)
