"""Public reports about offload and loading, as inputs: one load for many, many tiny pieces, order with
kernels."""

from __future__ import annotations

import numpy as np
import pytest

from umsh.errors import DeviceError, NeedError, TurnError
from umsh.fabric import Fabric, Transfer
from umsh.fabric.virtual import VirtualBackend

MIB = 1 << 20


def fifty(fabric: Fabric, server: VirtualBackend, urgent_last: bool = False) -> list[Transfer]:
    """50 requests for the same 16 MiB, over 50 ms of a load that others delay."""
    dst, src = server.alloc("device", 16 * MIB, 0), server.alloc("pinned", 16 * MIB)
    loads: list[Transfer] = []
    flow = fabric.flow("load", priority=2)
    urgent = fabric.flow("urgent load", priority=0)
    busy = fabric.flow("busy", priority=1)
    busy.copy(server.alloc("device", 4096 * MIB, 0), server.alloc("pinned", 4096 * MIB), ordered=False)
    for i in range(50):
        chosen = urgent if urgent_last and i == 49 else flow
        server.clock.at(i * 1e-3, lambda chosen=chosen: loads.append(chosen.copy(dst, src, key="prefix")))
    server.run(0.0495)
    return loads


def test_fifty_requests_for_one_prefix_are_one_load(fabric: Fabric, server: VirtualBackend) -> None:
    """Everyone queued behind one load: https://github.com/vllm-project/vllm/issues/44294."""
    loads = fifty(fabric, server)
    for load in loads:
        load.wait()
    stats = fabric.stats()["flows"]
    assert stats["load"]["served_nbytes"] + stats["urgent load"]["served_nbytes"] == 16 * MIB
    assert len({load.done_s for load in loads}) == 1


def test_the_leader_inherits_the_urgency_of_a_follower(fabric: Fabric, server: VirtualBackend) -> None:
    loads = fifty(fabric, server, urgent_last=True)
    began = server.now()
    loads[0].wait()
    assert server.now() - began < 2e-3, "no longer behind the 4 GiB of the class between"
    assert any("moved" in note for note in loads[0].notes)


def test_followers_of_a_load_that_fails_fail_and_may_retry(fabric: Fabric, server: VirtualBackend) -> None:
    loads = fifty(fabric, server)
    server.broken = True
    for load in loads:
        with pytest.raises(DeviceError):
            load.wait()


def test_cancelling_the_leader_does_not_cancel_its_followers(fabric: Fabric, server: VirtualBackend) -> None:
    loads = fifty(fabric, server)
    assert loads[0].cancel() == 0
    loads[3].cancel()
    with pytest.raises(TurnError):
        loads[3].wait()
    loads[1].wait()


def test_a_set_that_is_resident_waits_for_nothing(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("load", priority=2)
    fabric.flow("busy", priority=0).copy(
        server.alloc("device", 64 * MIB, 0), server.alloc("pinned", 64 * MIB)
    )
    assert flow.copy_many([], [], []).finished()


def pieces(server: VirtualBackend, order: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, size = 15_000, 64 << 10
    index = np.arange(n, dtype=np.int64)
    if order == "reversed":
        index = index[::-1]
    if order == "random":
        index = np.random.default_rng(3).permutation(index)
    spread = 2 if order == "stride 2" else 1
    dst = server.alloc("device", n * size * spread, 0)
    src = server.alloc("pinned", n * size * spread)
    return dst.ptr + index * size * spread, src.ptr + index * size * spread, np.full(n, size, np.int64)


@pytest.mark.parametrize("order", ["contiguous", "reversed", "random", "stride 2"])
def test_fifteen_thousand_pieces_cost_what_one_copy_costs(
    fabric: Fabric, server: VirtualBackend, order: str
) -> None:
    """Scattered 8 KiB pieces ran at 1-3 GB/s: https://github.com/vllm-project/vllm/issues/57342."""
    flow = fabric.flow("load", priority=0)
    copy = flow.copy_many(*pieces(server, order)).wait()
    assert copy.latency_s is not None
    assert copy.latency_s < 1.1 * (copy.nbytes / 55.3e9 + (15_000 * 0.2e-6 if order == "stride 2" else 0))


def test_pieces_that_overlap_or_leave_their_buffer_are_refused(
    fabric: Fabric, server: VirtualBackend
) -> None:
    flow = fabric.flow("load", priority=0)
    dsts, srcs, sizes = pieces(server, "contiguous")
    dsts[1] = dsts[0]
    with pytest.raises(NeedError, match="overlap"):
        flow.copy_many(dsts, srcs, sizes)
    with pytest.raises(NeedError, match="past its allocation"):
        flow.copy_many(dsts[-1:], srcs[-1:], sizes[-1:] + 1)
    other = server.alloc("device", MIB, 1)
    with pytest.raises(NeedError, match="two devices"):
        flow.copy_many([int(dsts[0]), other.ptr], srcs[:2], sizes[:2])


@pytest.mark.parametrize("given", ["stream", "no stream"])
@pytest.mark.parametrize("paced_for_s", [0.0, 2.0])
def test_a_store_waits_for_its_producer_whatever_the_pacing(
    fabric: Fabric, server: VirtualBackend, given: str, paced_for_s: float
) -> None:
    """A store on a copy stream read half-written blocks: https://github.com/vllm-project/vllm/pull/46278."""
    producer = server.open_stream(0)
    src, dst = server.alloc("device", MIB, 0, data=True), server.alloc("pinned", MIB, data=True)
    assert src.data is not None
    assert dst.data is not None
    server.kernel(producer, 0.3, lambda: src.data.fill(7))
    flow = fabric.flow("offload", priority=2)
    if paced_for_s:
        flow.delay(ms=paced_for_s * 1e3)
    flow.copy(dst, src, stream=producer if given == "stream" else None).wait()
    assert (dst.data == 7).all()
    assert server.now() >= max(0.3, paced_for_s)


def test_a_load_waits_for_earlier_readers_of_its_destination(fabric: Fabric, server: VirtualBackend) -> None:
    """A load-back wrote pages still in use: https://github.com/sgl-project/sglang/pull/36738."""
    reader = server.open_stream(0)
    src, dst = server.alloc("pinned", MIB, data=True), server.alloc("device", MIB, 0, data=True)
    assert src.data is not None
    assert dst.data is not None
    src.data.fill(9)
    seen: list[int] = []
    server.kernel(reader, 0.3, lambda: seen.append(int(dst.data.max())))
    fabric.flow("load", priority=0).copy(dst, src).wait()
    assert seen == [0]
    assert (dst.data == 9).all()


def test_the_unsafe_order_must_be_asked_for(fabric: Fabric, server: VirtualBackend) -> None:
    producer = server.open_stream(0)
    server.kernel(producer, 0.3)
    src, dst = server.alloc("device", MIB, 0), server.alloc("pinned", MIB)
    fabric.flow("offload", priority=2).copy(dst, src, stream=producer, ordered=False).wait()
    assert server.now() < 0.3
