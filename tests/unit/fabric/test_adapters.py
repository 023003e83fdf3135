"""The adapters against small fakes that have the published signatures."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from umsh.errors import DeviceError, NeedError
from umsh.fabric import Fabric
from umsh.fabric.adapters.mooncake import BATCH_NBYTES, PacedEngine
from umsh.fabric.adapters.vllm import FlowHandler
from umsh.fabric.virtual import VirtualBackend

BLOCK, BLOCKS, LAYERS = 16 << 10, 32, 3


def test_vllm_jobs_store_the_right_blocks_after_their_producer(
    fabric: Fabric, server: VirtualBackend
) -> None:
    device = [server.alloc("device", BLOCK * BLOCKS, 0, data=True) for _ in range(LAYERS)]
    host = [server.alloc("pinned", BLOCK * BLOCKS, data=True) for _ in range(LAYERS)]
    compute = server.open_stream(0)

    def produce() -> None:
        for layer, buffer in enumerate(device):
            assert buffer.data is not None
            buffer.data[:] = np.repeat(np.arange(BLOCKS, dtype=np.uint8) + 50 * layer, BLOCK)

    server.kernel(compute, 10e-3, produce)
    handler = FlowHandler(
        fabric.flow("offload", priority=2), [b.ptr for b in device], [b.ptr for b in host], BLOCK,
        ("GPU", "CPU"), lambda: compute,
    )  # fmt: skip
    sources, targets = np.array([3, 4, 9]), np.array([0, 1, 30])
    assert handler.transfer_async(7, (SimpleNamespace(block_ids=sources), SimpleNamespace(block_ids=targets)))
    assert handler.get_finished() == []
    handler.wait({7})
    (result,) = handler.get_finished()
    assert (result.job_id, result.success, result.transfer_size) == (7, True, LAYERS * 3 * BLOCK)
    assert result.transfer_type == ("GPU", "CPU")
    for layer, buffer in enumerate(host):
        assert buffer.data is not None
        blocks = buffer.data.reshape(BLOCKS, BLOCK)
        assert [int(blocks[t, 0]) for t in targets] == [int(s) + 50 * layer for s in sources]
        assert not blocks[2:30].any()
    assert handler.get_finished() == []


def test_vllm_jobs_on_a_lost_device_are_reported_as_failed(fabric: Fabric, server: VirtualBackend) -> None:
    device, host = server.alloc("device", BLOCK, 0), server.alloc("pinned", BLOCK)
    stream = server.open_stream(0)
    server.kernel(stream, 1e-3)
    flow = fabric.flow("offload", priority=2)
    handler = FlowHandler(flow, [device.ptr], [host.ptr], BLOCK, ("GPU", "CPU"), lambda: stream)
    ids = SimpleNamespace(block_ids=[0])
    handler.transfer_async(1, (ids, ids))
    server.broken = True
    with pytest.raises(DeviceError):
        handler.wait({1})
    assert [(r.job_id, r.success) for r in handler.get_finished()] == [(1, False)]


class FakeEngine:
    """A transfer engine that keeps what it is given; `status` is what it answers."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int], list[int], list[int]]] = []
        self.status = 1

    def batch_transfer_async_write(
        self, target: str, buffers: list[int], peer_buffer_addresses: list[int], lengths: list[int]
    ) -> int:
        self.batches.append((target, buffers, peer_buffer_addresses, lengths))
        return len(self.batches)

    def get_batch_transfer_status(self, batch_ids: list[int]) -> int:
        return self.status


def test_mooncake_batches_are_split_yield_and_are_reported(fabric: Fabric, server: VirtualBackend) -> None:
    engine, flow = FakeEngine(), fabric.flow("kv", priority=1, target_ms=20)
    paced = PacedEngine(engine, flow)
    lengths = [3 << 20] * 7 + [20 << 20]
    batch = paced.write("decode:1", list(range(8)), list(range(100, 108)), lengths)
    assert [length for made in engine.batches for length in made[3]] == lengths
    assert all(sum(made[3]) <= BATCH_NBYTES or len(made[3]) == 1 for made in engine.batches)
    assert not paced.finished(batch)
    server.run(server.now() + 30e-3)
    engine.status = 0
    assert paced.finished(batch)
    assert fabric.stats()["flows"]["kv"]["misses"] == 1
    engine.status = -1
    with pytest.raises(DeviceError):
        paced.finished(batch)
    with pytest.raises(NeedError):
        paced.write("decode:1", [1], [1, 2], [1])
