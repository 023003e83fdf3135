"""The fabric on a GPU: exact bytes, order with kernels, capture, and arrays of the frameworks people use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from umsh.errors import UnsupportedError
from umsh.fabric import Fabric
from umsh.fabric.cuda import CudaBackend
from umsh.fabric.sm_copier import SmCopier

MIB = 1 << 20
torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    try:
        backend = CudaBackend()
    except UnsupportedError as error:
        pytest.skip(str(error))
    with Fabric(backend) as made:
        yield made


def pinned(nbytes: int) -> Any:
    made = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    made.random_(1, 255)
    return made


def test_tensors_arrive_exactly_both_ways(fabric: Fabric) -> None:
    flow = fabric.flow("kv", priority=0)
    source, back = pinned(100 * MIB + 3), pinned(100 * MIB + 3)
    device = torch.zeros(100 * MIB + 3, dtype=torch.uint8, device="cuda")
    flow.copy(device, source).wait(30)
    back.zero_()
    flow.copy(back, device).wait(30)
    assert torch.equal(back, source)


def test_cupy_and_numpy_arrays_are_taken(fabric: Fabric) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    flow = fabric.flow("kv", priority=0)
    host = pinned(4 * MIB).numpy()
    device = cupy.zeros(4 * MIB, cupy.uint8)
    flow.copy(device, host).wait(30)
    assert (cupy.asnumpy(device) == host).all()
    pageable = np.random.default_rng(0).integers(0, 255, 20 * MIB + 5, np.uint8)
    target = cupy.zeros(len(pageable), cupy.uint8)
    flow.copy(target, pageable).wait(30)
    assert (cupy.asnumpy(target) == pageable).all()
    assert "staged" in fabric.explain("kv")


@pytest.mark.parametrize("given", [True, False], ids=["stream", "no stream"])
def test_a_store_follows_a_slow_kernel_on_a_side_stream(fabric: Fabric, given: bool) -> None:
    """A store read half-written blocks: https://github.com/vllm-project/vllm/pull/46278."""
    flow = fabric.flow("offload", priority=2)
    side = torch.cuda.Stream()
    source = torch.zeros(16 * MIB, dtype=torch.uint8, device="cuda")
    target = pinned(16 * MIB)
    flow.copy(target, source).wait(30)  # measures the link, which would outlast the kernel below
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(300_000_000)
        source.fill_(9)
    copy = flow.copy(target, source, stream=side if given else None)
    assert not copy.finished(), "the host went on"
    copy.wait(30)
    assert bool((target == 9).all())


def test_a_load_waits_for_readers_and_orders_consumers(fabric: Fabric) -> None:
    flow = fabric.flow("load", priority=0)
    side = torch.cuda.Stream()
    device, host = torch.zeros(16 * MIB, dtype=torch.uint8, device="cuda"), pinned(16 * MIB)
    host.fill_(5)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(300_000_000)
        seen = device.clone()
    copy = flow.copy(device, host, stream=side)
    consumer = torch.cuda.Stream()
    copy.wait_on(consumer)
    with torch.cuda.stream(consumer):
        after = device.clone()
    torch.cuda.synchronize()
    assert int(seen.max()) == 0
    assert int(after.min()) == 5


def test_a_copy_under_capture_belongs_to_the_graph(fabric: Fabric) -> None:
    flow = fabric.flow("kv", priority=0)
    device, host = torch.zeros(MIB, dtype=torch.uint8, device="cuda"), pinned(MIB)
    graph = torch.cuda.CUDAGraph()
    bulk_device = torch.zeros(1024 * MIB, dtype=torch.uint8, device="cuda")
    bulk = fabric.flow("bulk", priority=2).copy(bulk_device, pinned(1024 * MIB))  # polled during the capture
    with torch.cuda.graph(graph):
        copy = flow.copy(device, host, stream=torch.cuda.current_stream())
    assert copy.state == "captured"
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(device.cpu(), host)
    bulk.wait(30)


def test_scattered_pieces_land_where_they_should(fabric: Fabric) -> None:
    flow = fabric.flow("kv", priority=0)
    device, host = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda"), pinned(64 * MIB)
    rows = np.arange(0, 4096, 2, dtype=np.int64) * (16 << 10)
    flow.copy_many(
        device.data_ptr() + rows, host.data_ptr() + rows, np.full(len(rows), 16 << 10), ordered=False
    ).wait(30)
    got, want = device.cpu().reshape(4096, -1), host.reshape(4096, -1)
    assert torch.equal(got[::2], want[::2])
    assert int(got[1::2].max()) == 0


def test_a_copy_kernel_moves_the_same_bytes(fabric: Fabric) -> None:
    device, host = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda"), pinned(8 * MIB)
    stream = torch.cuda.Stream()
    SmCopier(fabric.backend).copy(device.data_ptr(), host.data_ptr(), 8 * MIB, stream.cuda_stream)
    stream.synchronize()
    assert torch.equal(device.cpu(), host)
