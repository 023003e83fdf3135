"""Regions in PyTorch, CuPy, numba-cuda, JAX and cuda.core, without a copy and with safe lifetimes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.backends.cuda.device import CudaDevice

N = 1 << 16


@pytest.fixture(params=["pinned.driver:WA/RA", "registered.thp:WA/RA", "managed.driver:WA/RA"])
def region(device: CudaDevice, request: pytest.FixtureRequest) -> Any:
    with umsh.bind((N,), "float32", direction="both", mechanism=request.param, device="cuda:0") as bound:
        with bound.on_cpu(write=True) as array:
            array[:] = np.arange(N, dtype=np.float32)
        yield bound


def test_torch_reads_and_writes_in_place(region: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with region.on_gpu() as g:
        tensor = torch.from_dlpack(g)
        assert tensor.is_cuda
        assert tensor.data_ptr() == g.ptr
        tensor.mul_(2)
        del tensor
    with region.on_cpu() as array:
        assert (array == 2 * np.arange(N, dtype=np.float32)).all()


def test_cupy_reads_and_writes_in_place(region: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    with region.on_gpu() as g:
        for array in (cupy.from_dlpack(g), cupy.asarray(g)):
            assert array.data.ptr == g.ptr
            array += 1
        del array
    with region.on_cpu() as result:
        assert (result == np.arange(N, dtype=np.float32) + 2).all()


def test_numba_reads_and_writes_in_place(numba_cuda: Any, region: Any) -> None:
    cuda = numba_cuda
    with region.on_gpu() as g:
        array = cuda.as_cuda_array(g)
        assert array.device_ctypes_pointer.value == g.ptr

        @cuda.jit  # type: ignore[untyped-decorator]
        def twice(x: Any) -> None:
            i = cuda.grid(1)
            if i < x.size:
                x[i] *= 2

        twice[N // 256, 256](array)
        del array
    with region.on_cpu() as result:
        assert (result == 2 * np.arange(N, dtype=np.float32)).all()


def test_jax_reads_without_a_copy(region: Any) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with region.on_gpu() as g:
        array = jax.dlpack.from_dlpack(g)
        assert array.unsafe_buffer_pointer() == g.ptr
        total = float(jax.numpy.sum(array, dtype=jax.numpy.float32))
        array.delete()
        del array
        gc.collect()
    assert total == pytest.approx(float(np.arange(N, dtype=np.float64).sum()), rel=1e-3)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_streams_order_the_hand_over(
    device: CudaDevice, slow_kernel: Callable[..., None], library: str
) -> None:
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    stream = module.cuda.Stream() if library == "torch" else module.cuda.Stream(non_blocking=True)
    handle = stream.cuda_stream if library == "torch" else stream.ptr
    region = umsh.bind((256,), "uint32", direction="gpu->cpu", source="gpu", device="cuda:0")
    with region.on_gpu(stream=stream) as g:
        slow_kernel(g.ptr, 256, 100, cupy.cuda.ExternalStream(handle))
    with region.on_cpu() as array:
        assert (array == 1).all()
    umsh.unbind(region)


def test_work_on_another_stream_is_waited_for_without_being_named(
    device: CudaDevice, slow_kernel: Callable[..., None]
) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    stream = cupy.cuda.Stream(non_blocking=True)
    region = umsh.bind((256,), "uint32", direction="gpu->cpu", source="gpu", device="cuda:0")
    with region.on_gpu() as g:
        slow_kernel(g.ptr, 256, 100, stream)
    with region.on_cpu() as array:
        assert (array == 1).all()
    umsh.unbind(region)


def test_a_tensor_outlives_its_region(device: CudaDevice) -> None:
    """https://github.com/cupy/cupy/issues/8111: the array outlived the memory."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    region = umsh.bind((N,), "float32", direction="both", device="cuda:0")
    with region.on_cpu(write=True) as array:
        array[:] = 5
    with region.on_gpu() as g:
        tensor = torch.from_dlpack(g)
    del region, g
    gc.collect()
    assert float(tensor.sum()) == 5 * N
    deleted: list[str] = []

    def drop(held: list[Any]) -> None:
        held.clear()
        gc.collect()
        deleted.append("done")

    held = [tensor]
    del tensor
    thread = threading.Thread(target=drop, args=(held,))
    thread.start()
    thread.join(20)
    assert deleted == ["done"]


def test_rounds_of_binding_give_everything_back(device: CudaDevice) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    free_before = device.memory_info()[0]
    for _ in range(300):
        region = umsh.bind((1 << 16,), "uint8", direction="both", device="cuda:0")
        with region.on_gpu() as g:
            tensor = torch.from_dlpack(g)
            del tensor
        umsh.unbind(region)
    gc.collect()
    assert device.memory_info()[0] >= free_before - (64 << 20)


def test_a_graph_captured_over_a_region_sees_what_the_cpu_writes(device: CudaDevice) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    region = umsh.bind((N,), "float32", direction="both", device="cuda:0")
    out = torch.zeros(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with region.on_gpu() as g:
        tensor = torch.from_dlpack(g)
        torch.add(tensor, 1, out=out)  # warm up
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            torch.add(tensor, 1, out=out)
        del tensor
    for value in (3.0, 8.0):
        with region.on_cpu(write=True) as array:
            array[:] = value
        with region.on_gpu(stream=torch.cuda.current_stream()):
            graph.replay()
        torch.cuda.synchronize()
        assert float(out.mean()) == value + 1
    umsh.unbind(region)


def test_a_cuda_core_memory_resource(device: CudaDevice) -> None:
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    if not hasattr(core, "MemoryResource"):
        pytest.skip(f"cuda.core {core.__version__} keeps MemoryResource in cuda.core.experimental")
    from umsh.backends.cuda.resource import SharedMemoryResource

    core.Device(0).set_current()
    resource = SharedMemoryResource(device)
    buffer = resource.allocate(4096, stream=core.Device(0).default_stream)
    array = np.from_dlpack(buffer) if buffer.__dlpack_device__()[0] == 1 else None
    assert buffer.is_device_accessible
    assert buffer.is_host_accessible
    assert buffer.size == 4096
    del array
    buffer.close()
    assert not resource._live


def test_no_error_is_pending_after_a_candidate_failed(device: CudaDevice) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    array = np.zeros(4096, np.uint8)
    region = umsh.bind(memory=array, direction="both", device="cuda:0")
    with pytest.raises(umsh.errors.AdoptError):
        device.adopt("registered", array.ctypes.data, array.nbytes, array)
    torch.cuda.synchronize()
    assert float(torch.ones(8, device="cuda").sum()) == 8
    umsh.unbind(region)
