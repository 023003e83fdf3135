"""The umsh policy: what it adds to Algorithm 1, term by term."""

from __future__ import annotations

import math

from umsh.lan.cluster import LanState, Link, Request, Running, Server, ServerState
from umsh.lan.correct import Correction
from umsh.lan.profiles import load_profiles
from umsh.lan.terms import Terms
from umsh.lan.umsh_policy import policy

TYPES = load_profiles().types


def lan(*servers: ServerState, mbps: float = 1000.0) -> LanState:
    return LanState(TYPES, {"router": Link("router", mbps)}, servers)


def server(
    name: str, gpu: str, memory_mb: float, *cached: str, running: tuple[Running, ...] = ()
) -> ServerState:
    return ServerState(Server(name, gpu, memory_mb, ("router",)), running, dict.fromkeys(cached, 0.0))


def infers(number: int, kind: str, left_s: float) -> Running:
    return Running(Request(number, number, kind, 0.0), "infer", 0.0, left_s, True)


def loads(number: int, kind: str, left_s: float) -> Running:
    cell = TYPES[kind].cells["A6000"]
    return Running(Request(number, number, kind, 0.0), "load", left_s, cell.infer_s)


def test_a_half_used_gpu_is_shared_beyond_occupancy_one_where_that_is_faster() -> None:
    state = lan(server("a", "4090", 24576, "llama3B-ggml", running=(infers(9, "llama3B-ggml", 4.2),)))
    ask = [Request(1, 1, "llama3B-ggml", 0.0)]
    assert policy()(state, ask, 0.0, Correction()).placed
    assert not policy(Terms(share=False))(state, ask, 0.0, Correction()).placed


def test_a_gpu_that_is_full_is_not_shared_further() -> None:
    running = (infers(8, "llama3B-ggml", 4.2), infers(9, "llama3B-ggml", 4.2))
    state = lan(server("a", "4090", 24576, "llama3B-ggml", running=running))
    assert not policy()(state, [Request(1, 1, "llama3B-ggml", 0.0)], 0.0, Correction()).placed


def test_it_waits_a_few_seconds_rather_than_load_for_minutes() -> None:
    busy = server("a", "A4500", 20480, "sd3-medium-t5", running=(infers(9, "sd3-medium-t5", 5.0),))
    state = lan(busy, server("b", "A6000", 49152))
    ask = [Request(1, 1, "sd3-medium-t5", 0.0)]
    waits = policy()(state, ask, 0.0, Correction())
    assert not waits.placed
    assert "beats loading" in waits.waiting[0][1]
    assert policy(Terms(weigh=False))(state, ask, 0.0, Correction()).placed[0].phase == "load"


def test_short_loads_come_first() -> None:
    state = lan(server("a", "A6000", 49152))
    asks = [Request(1, 1, "llava7B-pytorch", 0.0), Request(2, 2, "fno-pytorch", 0.0)]
    assert policy()(state, asks, 0.0, Correction()).placed[0].request.type == "fno-pytorch"


def test_a_short_load_joins_a_long_one_on_a_full_link() -> None:
    state = lan(server("a", "A6000", 49152, running=(loads(9, "llava7B-pytorch", 170.0),)))
    ask = [Request(1, 1, "fno-pytorch", 0.0)]
    assert policy()(state, ask, 0.0, Correction()).placed
    assert not policy(Terms(share_link=False))(state, ask, 0.0, Correction()).placed


def test_eviction_spares_the_only_copy_that_is_in_use() -> None:
    held = ServerState(
        Server("a", "4090", 24576, ("router",)), (), {"sd3-medium-t5": 99.0, "fno-pytorch": 0.0}
    )
    state = lan(held, server("b", "A6000", 49152))
    placed = policy()(state, [Request(1, 1, "llava7B-pytorch", 100.0)], 100.0, Correction()).placed
    assert placed[0].server == "b"


def test_an_overdue_request_keeps_a_server_free_for_itself() -> None:
    """Small tasks would fill the server for ever; the paper has no guard against that."""
    running = tuple(infers(90 + i, "whisper-large-v3", 7.0) for i in range(2))
    state = lan(server("a", "A6000", 16500, "whisper-large-v3", "fno-pytorch", running=running))
    old = Request(1, 1, "sd3-medium-t5", 0.0)
    crowd = [Request(10 + i, 10 + i, "fno-pytorch", 998.0) for i in range(4)]
    step = policy()(state, [old, *crowd], 1000.0, Correction())
    assert not step.placed
    assert "kept free" in {request.id: why for request, why in step.waiting}[1]
    unguarded = policy(Terms(guard_s=math.inf))(state, [old, *crowd], 1000.0, Correction())
    assert unguarded.placed


def test_the_overdue_request_runs_once_the_server_has_drained() -> None:
    state = lan(server("a", "A6000", 16500, "whisper-large-v3", "fno-pytorch"))
    old = Request(1, 1, "sd3-medium-t5", 0.0)
    crowd = [Request(10 + i, 10 + i, "whisper-large-v3", 998.0) for i in range(4)]
    placed = policy()(state, [old, *crowd], 1000.0, Correction()).placed
    assert placed[0].request.id == 1
    assert "goes first" in placed[0].reason


def test_correction_changes_the_decision() -> None:
    state = lan(server("slow", "A4500", 20480, "fno-pytorch"), server("fast", "4090", 24576, "fno-pytorch"))
    ask = [Request(1, 1, "fno-pytorch", 0.0)]
    assert policy()(state, ask, 0.0, Correction()).placed[0].server == "fast"
    wrong = Correction(time={("fno-pytorch", "4090"): 2.0})
    assert policy()(state, ask, 0.0, wrong).placed[0].server == "slow"
