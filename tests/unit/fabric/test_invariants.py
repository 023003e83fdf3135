"""Invariants that hold for any load: https://github.com/kvcache-ai/Mooncake/issues/2866 lists them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umsh.fabric import Fabric
from umsh.fabric.pacer import window_nbytes
from umsh.fabric.virtual import VirtualBackend

KIB = 1 << 10
CHUNK = 64 * KIB

flows = st.lists(
    st.fixed_dictionaries(
        {
            "priority": st.integers(0, 2),
            "floor": st.sampled_from([0.0, 0.05, 0.1]),
            "target_ms": st.sampled_from([None, 1, 50]),
        }
    ),
    min_size=1,
    max_size=4,
)
jobs = st.lists(
    st.tuples(
        st.integers(0, 3),  # flow
        st.integers(0, 700 * KIB),  # bytes
        st.integers(0, 3000),  # start, us
        st.sampled_from(["h2d", "d2h"]),
        st.booleans(),  # cancelled shortly after
        st.integers(0, 2),  # stream: none, idle, busy
    ),
    min_size=1,
    max_size=12,
)


def run(flow_specs: list[dict[str, Any]], job_specs: list[tuple[Any, ...]]) -> None:
    server = VirtualBackend()
    fabric = Fabric(server, chunk_nbytes=CHUNK)
    made = [fabric.flow(f"flow {i}", **spec) for i, spec in enumerate(flow_specs)]
    streams = [None, server.open_stream(0), server.open_stream(0)]
    server.kernel(streams[2], 1e-3)
    submitted: list[Any] = []
    order: dict[Any, list[int]] = {}

    def begin(number: int, job: tuple[Any, ...]) -> None:
        which, nbytes, _, kind, cancelled, stream = job
        host, device = server.alloc("pinned", nbytes, data=True), server.alloc("device", nbytes, 0, data=True)
        dst, src = (device, host) if kind == "h2d" else (host, device)
        assert src.data is not None
        src.data[:] = np.random.default_rng(number).integers(1, 255, nbytes, np.uint8)
        flow = made[which % len(made)]
        copy = flow.copy(dst, src, stream=streams[stream])
        lane = (flow.name, kind, stream)
        if nbytes and not cancelled:  # nothing to copy is done at once
            copy.add_done_callback(lambda _: order.setdefault(lane, []).append(number))
        submitted.append((copy, dst, src, number, cancelled))
        if cancelled:
            server.clock.after(50e-6, copy.cancel)

    for number, job in enumerate(job_specs):
        server.clock.at(job[2] * 1e-6, partial(begin, number, job))
    most = 0
    while server.clock.step():
        for engine in fabric.core.engines.values():
            most = max(most, engine.pacer.in_flight_nbytes)
    assert most <= window_nbytes(4 * CHUNK), "in flight never above the window"
    check(fabric, submitted, order, job_specs)
    fabric.close()


def check(fabric: Fabric, submitted: list[Any], order: Any, job_specs: list[tuple[Any, ...]]) -> None:
    assert len(submitted) == len(job_specs)
    moved = 0
    for copy, dst, src, _, cancelled in submitted:
        assert copy.finished(), "nothing hangs"
        assert copy.state == "done" or cancelled
        moved += copy.completed_nbytes
        if copy.state == "done":
            assert copy.completed_nbytes == copy.nbytes
            assert (dst.data == src.data).all(), "bytes out are bytes in"
    stats = fabric.stats()["flows"].values()
    assert sum(flow["served_nbytes"] for flow in stats) == moved, "no accounting is lost"
    assert all(flow["backlog_nbytes"] == 0 for flow in stats)
    for lane in order.values():
        starts = [job_specs[number][2] for number in lane]
        assert starts == sorted(starts), "first in, first out inside a flow's stream"


@settings(max_examples=60, deadline=None)
@given(flows, jobs)
def test_any_load_is_carried_exactly_once_in_order_and_inside_the_window(
    flow_specs: list[dict[str, Any]], job_specs: list[tuple[Any, ...]]
) -> None:
    run(flow_specs, job_specs)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40))
def test_splitting_a_request_earns_no_larger_share(parts_left: int, parts_right: int) -> None:
    server = VirtualBackend()
    with Fabric(server, chunk_nbytes=CHUNK) as fabric:
        total = 32 << 20
        for name, parts in (("left", parts_left), ("right", parts_right)):
            flow = fabric.flow(name, priority=1)
            for _ in range(parts):
                nbytes = total // parts
                flow.copy(server.alloc("device", nbytes, 0), server.alloc("pinned", nbytes))
        server.run(0.3e-3)
        flows = fabric.stats()["flows"]
        assert abs(flows["left"]["served_nbytes"] - flows["right"]["served_nbytes"]) <= 6 * CHUNK


@settings(max_examples=12, deadline=None)
@given(st.floats(0.5e9, 40e9), st.integers(0, 2))
def test_long_run_service_stays_below_the_cap_and_its_burst(cap_bps: float, priority: int) -> None:
    """The cap binds while a flow with a goal is active: here one that copies by itself, at 90 % of it."""
    server = VirtualBackend()
    with Fabric(server) as fabric:
        own, bulk = fabric.flow("own", priority=0, target_ms=1000), fabric.flow("bulk", priority=priority)
        nbytes = 4 << 30
        bulk.copy(server.alloc("device", nbytes, 0), server.alloc("pinned", nbytes), ordered=False)
        server.run(1e-3)
        engine = fabric.core.engines["h2d:0"]
        queue = engine.queues["bulk"]
        queue.cap_bps, queue.tokens_nbytes = cap_bps, 0.0
        before, begin = queue.served_nbytes, server.now()

        def touch() -> None:
            own.report(1, 0.9, link="h2d:0")
            if server.now() < begin + 0.05:
                server.clock.after(5e-3, touch)

        touch()
        server.run(begin + 0.05)
        largest = 2 * engine.pacer.chunk_nbytes_alone
        assert queue.served_nbytes - before <= cap_bps * 0.05 + window_nbytes(largest)


@pytest.mark.parametrize("nbytes", [1 << 30, 300 << 20])
def test_a_lone_flow_gets_nearly_all_of_the_link(nbytes: int) -> None:
    server = VirtualBackend()
    with Fabric(server) as fabric:
        flow = fabric.flow("alone", priority=2, floor=0.05)
        copy = flow.copy(server.alloc("device", nbytes, 0), server.alloc("pinned", nbytes), ordered=False)
        latency = copy.wait().latency_s
        assert latency is not None
        assert nbytes / latency >= 0.95 * 55.3e9


def test_equal_flows_match_processor_sharing(server: VirtualBackend) -> None:
    """N equal flows, N equal copies, all at once: each must end at N times its time alone."""
    with Fabric(server) as fabric:
        nbytes = 256 << 20
        copies = []
        for i in range(4):
            flow = fabric.flow(f"flow {i}", priority=1, floor=0.0)
            copies.append(flow.copy(server.alloc("device", nbytes, 0), server.alloc("pinned", nbytes)))
        for copy in copies:
            copy.wait()
        alone = nbytes / 55.3e9
        for copy in copies:
            assert copy.latency_s == pytest.approx(4 * alone, rel=0.06)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([0.02, 0.05, 0.2]), st.integers(0, 1), st.integers(1, 3))
def test_floors_hold_under_any_urgent_load(floor: float, priority: int, rivals: int) -> None:
    """A backlogged flow gets its floor, at the latest its horizon after the start, whoever is ahead of it."""
    server = VirtualBackend()
    with Fabric(server) as fabric:
        low = fabric.flow("low", priority=2, floor=floor)
        nbytes = 1 << 33
        dst, src = server.alloc("device", nbytes, 0), server.alloc("pinned", nbytes)
        low.copy(dst, src, ordered=False)
        for i in range(rivals):
            rival = fabric.flow(f"rival {i}", priority=priority, target_ms=1)
            for _ in range(3):
                rival.copy(dst, src, ordered=False)
        seconds = 0.3
        server.run(seconds)
        served = fabric.stats()["flows"]["low"]["served_nbytes"]
        promised = floor * 55.3e9 * (seconds - low.floor_horizon_s)
        assert served >= 0.95 * promised - 2 * fabric.core.engines["h2d:0"].pacer.chunk_nbytes
