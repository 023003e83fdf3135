"""Algorithm 1: equation 6's golden values and both phases as printed."""

from __future__ import annotations

import pytest

from umsh.lan.cluster import LanState, Link, Request, Running, Server, ServerState
from umsh.lan.gleam import group_size, step
from umsh.lan.profiles import load_profiles

TYPES = load_profiles().types
ROUTER = {"router": Link("router", 1000.0)}


def state_of(*servers: ServerState) -> LanState:
    return LanState(TYPES, ROUTER, servers)


def server(
    name: str, gpu: str, memory_mb: float, *cached: str, running: tuple[Running, ...] = ()
) -> ServerState:
    return ServerState(Server(name, gpu, memory_mb, ("router",)), running, dict.fromkeys(cached, 0.0))


def asks(*types: str) -> list[Request]:
    return [Request(i, i, name, 0.0) for i, name in enumerate(types)]


@pytest.mark.parametrize(
    ("u", "load", "pending", "group"), [(0.26, 0.0, 5, 3), (0.30, 0.5, 5, 1), (0.63, 0.5, 5, 0)]
)
def test_equation_6_golden_values(u: float, load: float, pending: int, group: int) -> None:
    assert group_size(u, load, pending) == group


def test_groups_are_clipped_to_pending_tasks_and_full_sums_count_as_full() -> None:
    assert group_size(0.26, 0.0, 2) == 2
    assert group_size(0.3, 0.7, 5) == 1
    assert group_size(0.0, 1.0, 4) == 4


def test_phase_1_puts_a_group_on_the_server_with_the_weights() -> None:
    lan = state_of(server("a", "4090", 24576, "whisper-large-v3"), server("b", "A4500", 20480))
    decision = step(lan, asks(*["whisper-large-v3"] * 5), 1.0)
    assert [(item.server, item.phase) for item in decision.placed] == [("a", "infer")] * 3
    # 3 inferences at 8 % and a load at 76.95 % would pass the link's capacity.
    assert "link full" in decision.waiting[0][1]
    assert "compute full" in decision.waiting[0][1]


def test_phase_1_takes_the_least_predicted_latency() -> None:
    lan = state_of(
        server("slow", "A4500", 20480, "llama3B-ggml"), server("fast", "4090", 24576, "llama3B-ggml")
    )
    assert step(lan, asks("llama3B-ggml"), 1.0).placed[0].server == "fast"


def test_phase_2_loads_one_task_at_a_time_over_a_shared_link() -> None:
    lan = state_of(server("a", "4090", 24576), server("b", "A6000", 49152))
    decision = step(lan, asks("llama3B-ggml", "whisper-large-v3", "sd3-medium-t5"), 1.0)
    assert [(item.request.type, item.phase) for item in decision.placed] == [("sd3-medium-t5", "load")]
    assert all("link full" in why for _, why in decision.waiting)


def test_phase_2_uses_two_links_at_once() -> None:
    links = {"a": Link("a", 1000.0), "b": Link("b", 1000.0)}
    one = ServerState(Server("a", "4090", 24576, ("a",)))
    two = ServerState(Server("b", "A6000", 49152, ("b",)))
    decision = step(LanState(TYPES, links, (one, two)), asks("llama3B-ggml", "whisper-large-v3"), 1.0)
    assert {item.server for item in decision.placed} == {"a", "b"}


def test_the_link_constraint_is_strict() -> None:
    running = tuple(Running(Request(90 + i, 0, "fno-pytorch", 0.0), "infer", 0.0, 5.0) for i in range(3))
    lan = state_of(server("a", "A6000", 49152, "fno-pytorch", running=running))
    # 3 inferences at 8 % leave 0.76; sd3 asks 0.8045, llama3B 0.7515.
    assert step(lan, asks("sd3-medium-t5"), 1.0).placed == ()
    assert step(lan, asks("llama3B-ggml"), 1.0).placed[0].phase == "load"
    assert step(lan, asks("sd3-medium-t5"), 1.0, loads_only=True).placed[0].phase == "load"


def test_shareable_weights_count_once() -> None:
    lan = state_of(server("a", "A6000", 17500, "llava7B-pytorch"))
    # One llava needs 15.8 GB, a second only its private 1.4 GB; a third does not fit.
    decision = step(lan, asks(*["llava7B-pytorch"] * 3), 1.0)
    assert len(decision.placed) == 2
    assert "memory full" in decision.waiting[0][1]


def test_the_state_given_is_not_changed() -> None:
    lan = state_of(server("a", "4090", 24576, "whisper-large-v3"))
    before = (lan.servers[0].running, dict(lan.servers[0].cached))
    step(lan, asks("llava7B-pytorch", "whisper-large-v3"), 1.0)
    assert (lan.servers[0].running, dict(lan.servers[0].cached)) == before
