"""What flows promise on a modelled server: exact bytes, order, goals, floors, and the way out."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from umsh.errors import TurnError, WaitTimeout
from umsh.fabric import Fabric, Transfer
from umsh.fabric.pacer import CHUNK_NBYTES
from umsh.fabric.virtual import ModelBuffer, VirtualBackend

MIB = 1 << 20
GIB = 1 << 30
CHUNK_S = CHUNK_NBYTES / 55.3e9


def pair(server: VirtualBackend, nbytes: int, data: bool = False) -> tuple[ModelBuffer, ModelBuffer]:
    """A device destination and a pinned source; the source holds a pattern when `data`."""
    dst, src = server.alloc("device", nbytes, 0, data), server.alloc("pinned", nbytes, None, data)
    if src.data is not None:
        src.data[:] = np.arange(nbytes, dtype=np.uint32).astype(np.uint8)
    return dst, src


def same(dst: ModelBuffer, src: ModelBuffer) -> bool:
    assert dst.data is not None
    assert src.data is not None
    return bool((dst.data == src.data).all())


def test_bytes_arrive_exactly_through_many_chunks(server: VirtualBackend) -> None:
    with Fabric(server, chunk_nbytes=64 << 10) as fabric:
        dst, src = pair(server, 3 * MIB + 17, data=True)
        other_dst, other_src = pair(server, 2 * MIB + 5, data=True)
        copies = [
            fabric.flow("a", priority=1).copy(dst, src),
            fabric.flow("b", priority=1).copy(other_dst, other_src),
        ]
        for copy in copies:
            copy.wait()
        assert same(dst, src)
        assert same(other_dst, other_src)


def test_an_urgent_copy_passes_a_bulk_one_within_two_chunks(fabric: Fabric, server: VirtualBackend) -> None:
    """A 51 KB copy waited 12 ms behind one of 200 MB: https://github.com/meta-pytorch/torchrec/pull/4303."""
    urgent, bulk = fabric.flow("urgent", priority=0), fabric.flow("bulk", priority=2)
    urgent.copy(*pair(server, 64 << 10)).wait()  # known as active, so that chunks are small
    whole = bulk.copy(*pair(server, 2 * GIB))
    latencies = []
    for _ in range(4):
        server.run(server.now() + 5e-3)
        latencies.append(urgent.copy(*pair(server, 64 << 10)).wait().latency_s)
    assert max(value for value in latencies if value is not None) < 2.2 * CHUNK_S + 0.1e-3
    started = server.now()
    whole.wait()
    assert server.now() > started, "bulk was still on its way"


def test_the_other_direction_is_not_affected(fabric: Fabric, server: VirtualBackend) -> None:
    """D2H copies beside a burst of H2D: https://github.com/NVIDIA/cudf/issues/15620."""
    small, bulk = fabric.flow("small", priority=0), fabric.flow("bulk", priority=2)
    dst, src = pair(server, 64 << 10)
    alone = small.copy(src, dst).wait().latency_s
    bulk.copy(*pair(server, GIB), ordered=False)
    server.run(server.now() + 2e-3)
    beside = small.copy(src, dst, ordered=False).wait().latency_s
    assert alone is not None
    assert beside is not None
    assert beside < 1.2 * alone + 10e-6


def test_equal_priority_is_first_come_and_shares_by_bytes(fabric: Fabric, server: VirtualBackend) -> None:
    left, right = fabric.flow("left", priority=1), fabric.flow("right", priority=1)
    first = left.copy(*pair(server, 512 * MIB))
    for _ in range(32):  # the same bytes in many small transfers must not earn more
        last = right.copy(*pair(server, 16 * MIB))
    first.wait()
    assert right.fabric.stats()["flows"]["right"]["backlog_nbytes"] < 64 * MIB
    last.wait()


def test_registration_order_is_irrelevant_and_twenty_background_jobs_wait(server: VirtualBackend) -> None:
    """Background stores configured first went first: https://github.com/vllm-project/vllm/pull/57829."""
    for names in (["background", "critical"], ["critical", "background"]):
        with Fabric(VirtualBackend()) as fabric:
            server = fabric.backend
            for name in names:
                fabric.flow(name, priority=0 if name == "critical" else 2)
            flows = fabric.core.flows
            flows["critical"].copy(*pair(server, MIB)).wait()
            jobs = [flows["background"].copy(*pair(server, 64 * MIB)) for _ in range(20)]
            server.run(server.now() + 1e-3)
            critical = flows["critical"].copy(*pair(server, MIB)).wait()
            assert critical.latency_s is not None
            assert critical.latency_s < 2.2 * CHUNK_S + MIB / 55e9 + 0.1e-3
            jobs[-1].wait()


def test_a_stuck_producer_blocks_only_its_own_stream(fabric: Fabric, server: VirtualBackend) -> None:
    """One stuck store blocked all loads: https://github.com/vllm-project/vllm/pull/57829."""
    flow = fabric.flow("store", priority=1)
    stuck, free = server.open_stream(0), server.open_stream(0)
    server.kernel(stuck, 1e6)
    blocked = flow.copy(*pair(server, MIB), stream=stuck)
    flow.copy(*pair(server, MIB), stream=free).wait()
    fabric.flow("load", priority=2).copy(*pair(server, MIB), stream=free).wait()
    assert not blocked.finished()
    assert blocked.cancel() == MIB


def test_background_keeps_its_floor_under_an_endless_critical_load(
    fabric: Fabric, server: VirtualBackend
) -> None:
    """Strict priority alone never runs the rest: https://github.com/milvus-io/milvus/pull/52749."""
    critical, background = (
        fabric.flow("critical", priority=0),
        fabric.flow("background", priority=2, floor=0.05),
    )
    dst, src = pair(server, 4 * GIB)

    def again(_: object = None) -> None:
        if server.now() < 2.0:
            critical.copy(dst, src, ordered=False).add_done_callback(again)

    again()
    again()
    for _ in range(2):
        background.copy(dst, src, ordered=False)
    server.run(1.0)
    early = fabric.stats()["flows"]["background"]["served_nbytes"]
    server.run(2.0)
    served = fabric.stats()["flows"]["background"]["served_nbytes"] - early
    assert served >= 0.05 * 55.3e9 - 2 * CHUNK_NBYTES
    assert served <= 0.06 * 55.3e9, "and no more than its floor while critical work waits"


def test_a_minimum_rate_is_served_at_once(fabric: Fabric, server: VirtualBackend) -> None:
    critical, weights = fabric.flow("critical", priority=0), fabric.flow("weights", priority=1, min_gbps=8)
    critical.copy(*pair(server, 8 * GIB))
    copy = weights.copy(*pair(server, 256 * MIB)).wait()
    assert copy.latency_s is not None
    assert copy.latency_s < 1.1 * 256 * MIB / 8e9


def test_priority_may_change_while_queued(fabric: Fabric, server: VirtualBackend) -> None:
    first, second = fabric.flow("first", priority=1), fabric.flow("second", priority=2)
    one, two = first.copy(*pair(server, GIB)), second.copy(*pair(server, 64 * MIB))
    second.priority = 0
    two.wait()
    assert not one.finished()


def test_pause_resume_and_delay(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("offload", priority=2)
    flow.pause()
    copy = flow.copy(*pair(server, MIB))
    server.run(0.1)
    assert not copy.finished()
    flow.delay(ms=50)
    flow.resume()
    copy.wait()
    assert server.now() == pytest.approx(0.15, abs=1e-3)


def test_cancel_drops_the_rest_and_accounts_for_all(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("offload", priority=2)
    dst, src = pair(server, 512 * MIB)
    copy = flow.copy(dst, src, ordered=False)
    server.run(3e-3)
    dropped = copy.cancel()
    with pytest.raises(TurnError, match="cancelled"):
        copy.wait()
    served = fabric.stats()["flows"]["offload"]["served_nbytes"]
    assert 0 < dropped < copy.nbytes
    assert served + dropped == copy.nbytes
    assert fabric.stats()["flows"]["offload"]["backlog_nbytes"] == 0
    assert copy.cancel() == 0
    flow.copy(dst, src).wait()


def test_quiet_keeps_the_link_free_and_opens_again(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("offload", priority=2)
    copy = flow.copy(*pair(server, GIB), ordered=False)
    server.run(2e-3)
    with fabric.quiet("h2d:0"):
        carried = server.machine.link("h2d:0").carried_nbytes
        server.run(server.now() + 0.5)
        assert server.machine.link("h2d:0").carried_nbytes == carried
    copy.wait()


def test_checkpoint_yields_to_more_urgent_copies(fabric: Fabric, server: VirtualBackend) -> None:
    own, urgent = fabric.flow("own", priority=2), fabric.flow("urgent", priority=0)
    own.checkpoint(8 * MIB, link="h2d:0")
    assert server.now() < 1e-3, "nothing else was waiting"
    copy = urgent.copy(*pair(server, GIB))
    own.checkpoint(8 * MIB, link="h2d:0")
    assert copy.remaining_nbytes < 128 * MIB


def test_await_and_wait_on(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("kv", priority=0)

    async def use() -> Transfer:
        return await flow.copy(*pair(server, MIB))

    assert asyncio.run(use()).state == "done"
    consumer = server.open_stream(0)
    dst, src = pair(server, 64 * MIB, data=True)
    seen = []
    flow.copy(dst, src, ordered=False).wait_on(consumer)
    server.kernel(consumer, 1e-6, lambda: seen.append(same(dst, src)))
    server.run(server.now() + 1.0)
    assert seen == [True]


def test_wait_gives_up_and_says_what_had_arrived(fabric: Fabric, server: VirtualBackend) -> None:
    copy = fabric.flow("offload", priority=2).copy(*pair(server, GIB), ordered=False)
    with pytest.raises(WaitTimeout, match="explain"):
        copy.wait(timeout_s=5e-3)
    copy.wait()


def test_without_a_stated_goal_a_copy_is_plain_and_starts_no_queue(
    fabric: Fabric, server: VirtualBackend
) -> None:
    flow = fabric.flow("plain")
    dst, src = pair(server, 64 * MIB, data=True)
    stream = server.open_stream(0)
    copy = flow.copy(dst, src, stream=stream)
    server.run()
    alone_s = 64 * MIB / 55.3e9
    assert server.now() == pytest.approx(alone_s, rel=0.03), "one copy, no chunks"
    copy.wait()
    assert same(dst, src)
    assert not fabric.core.engines
    assert "plain" in fabric.explain("plain")


def test_one_flow_alone_loses_less_than_two_percent(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("alone", priority=0, target_ms=1000)
    copy = flow.copy(*pair(server, 4 * GIB), ordered=False).wait()
    assert copy.latency_s is not None
    assert copy.latency_s < 1.02 * 4 * GIB / 55.3e9


def test_explain_names_the_limit_and_its_reason(fabric: Fabric, server: VirtualBackend) -> None:
    """A goal in the same class as the bulk: only the loop can help, and it says so."""
    kv, offload = fabric.flow("kv", priority=1, target_ms=25), fabric.flow("offload", priority=1)
    for _ in range(4):
        offload.copy(*pair(server, GIB), ordered=False)
    kv.copy(*pair(server, GIB), ordered=False).wait()
    text = fabric.explain("offload")
    assert "kv missed its goal" in text
    assert "limited to" in text
    assert fabric.stats()["links"]["h2d:0"]["direction_changes"] <= 1


def test_a_limit_holds_even_on_an_idle_link(fabric: Fabric, server: VirtualBackend) -> None:
    copy = fabric.flow("offload", max_gbps=5).copy(*pair(server, 512 * MIB)).wait()
    assert copy.latency_s == pytest.approx(512 * MIB / 5e9, rel=0.15)
