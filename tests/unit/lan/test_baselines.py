"""Baselines: FGD's golden values, Mudi-style's line, and that none of them is crippled."""

from __future__ import annotations

import math

import numpy as np
import pytest

from umsh.lan import baselines, fgd, mudi
from umsh.lan.cluster import LanState, Link, Request, Running, Server, ServerState
from umsh.lan.policies import make, names
from umsh.lan.profiles import load_profiles

TYPES = load_profiles().types
GPUS = [200.0, 1000.0, 1000.0, 500.0]
TYPICAL = [fgd.Demand(0.0933, 6000, 1, 465)]


def lan(*servers: ServerState) -> LanState:
    return LanState(TYPES, {"router": Link("router", 1000.0)}, servers)


def server(name: str, gpu: str, memory_mb: float, *running: str) -> ServerState:
    tasks = tuple(Running(Request(90 + i, 0, kind, 0.0), "infer", 0.0, 5.0) for i, kind in enumerate(running))
    return ServerState(Server(name, gpu, memory_mb, ("router",)), tasks, dict.fromkeys(running, 0.0))


def test_fgd_golden_node_without_the_cpu_loses_every_free_milli() -> None:
    assert fgd.fragmentation(1000, GPUS, TYPICAL) == pytest.approx(251.91)


def test_fgd_golden_node_with_the_cpu_loses_only_what_is_too_small() -> None:
    assert fgd.fragmentation(8000, GPUS, TYPICAL) == pytest.approx(18.66)


def test_fgd_counts_a_task_without_gpu_and_a_wrong_model_as_all_lost() -> None:
    assert fgd.fragmentation(8000, GPUS, [fgd.Demand(1.0, 100, 0, 0)]) == 2700.0
    assert fgd.fragmentation(8000, GPUS, [fgd.Demand(1.0, 100, 1, 100, "A100")], "T4") == 2700.0
    assert fgd.fragmentation(8000, GPUS, [fgd.Demand(1.0, 100, 3, 400)]) == 200.0


def test_fgd_takes_the_steepest_descent_and_never_oversubscribes() -> None:
    # llama8B leaves 0.42 on the 4090 and 0.37 on the A6000; both could still host some of the mix.
    queue = [Request(i, i, "llama8B-ggml", 0.0) for i in range(6)]
    decision = fgd.step(lan(server("a", "4090", 24576), server("b", "A6000", 49152)), queue, 1.0)
    assert len(decision.placed) == 2
    assert {item.server for item in decision.placed} == {"a", "b"}


def test_mudi_line_is_the_least_squares_fit_on_the_interval() -> None:
    u = 0.6
    x = np.linspace(u / 3, u, 200_001)
    y, z = u / x - 1.0, u - x
    fitted = float((y * z).sum() / (z * z).sum()) * u
    assert fitted == pytest.approx(mudi.SLOPE, rel=1e-4)


def test_mudi_slowdown_has_a_knee_at_the_occupancy() -> None:
    assert mudi.slowdown(0.4, 0.4) == mudi.slowdown(0.4, 0.9) == 1.0
    assert mudi.slowdown(0.4, 0.2) == pytest.approx(1.0 + mudi.SLOPE / 2)
    assert math.isfinite(mudi.slowdown(0.4, -5.0))


def test_mudi_spreads_and_rejects_beyond_its_goal() -> None:
    queue = [Request(i, i, "llama3B-ggml", 0.0) for i in range(8)]
    decision = mudi.step(lan(server("a", "4090", 24576), server("b", "A6000", 49152)), queue, 1.0)
    assert {item.server for item in decision.placed} == {"a", "b"}
    assert decision.waiting


def test_fair_takes_the_server_with_the_fewest_tasks() -> None:
    state = lan(server("a", "4090", 24576, "fno-pytorch"), server("b", "A6000", 49152))
    assert baselines.fair_step(state, [Request(1, 1, "fno-pytorch", 0.0)], 1.0).placed[0].server == "b"


def test_random_is_reproducible() -> None:
    state = lan(server("a", "4090", 24576), server("b", "A6000", 49152))
    queue = [Request(i, i, "fno-pytorch", 0.0) for i in range(20)]
    runs = [make("random", 7).policy(state, queue, 1.0, None) for _ in range(2)]  # type: ignore[arg-type]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", ["fgd", "mudi"])
def test_the_strengthened_baselines_take_the_server_with_the_weights(name: str) -> None:
    cached = ServerState(Server("b", "A6000", 49152, ("router",)), (), {"llava7B-pytorch": 0.0})
    state = lan(server("a", "4090", 24576), cached)
    placed = make(f"{name}+cache").policy(state, [Request(1, 1, "llava7B-pytorch", 0.0)], 1.0, None)  # type: ignore[arg-type]
    assert [(item.server, item.phase) for item in placed.placed] == [("b", "infer")]


@pytest.mark.parametrize("name", names())
def test_every_policy_accounts_for_every_request(name: str) -> None:
    state = lan(server("a", "4090", 24576), server("b", "4070", 12288))
    queue = [Request(i, i, kind, 0.0) for i, kind in enumerate(sorted(TYPES) * 3)]
    decision = make(name).policy(state, queue, 1.0, None)  # type: ignore[arg-type]
    seen = [item.request.id for item in decision.placed]
    seen += [request.id for request, _ in (*decision.waiting, *decision.refused)]
    assert sorted(seen) == [request.id for request in queue]
    assert all(why for _, why in (*decision.waiting, *decision.refused))
