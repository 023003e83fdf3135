"""The best schedule of a small batch by branch and bound, and what a policy makes of the same batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from umsh.lan.cluster import LanState, Link, Request, Running, Server, ServerState, Stage, TaskType
from umsh.lan.correct import Correction
from umsh.lan.errors import LanInputError
from umsh.lan.memory import evict, need_mb, pinned_mb
from umsh.lan.predict import GAMMA_COMPUTE, GAMMA_LINK, latency_factor
from umsh.lan.screen import Policy

REQUESTS_MAX = 8
NODES_MAX = 400_000
HAIR_S = 1e-9


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that all arrive at time 0, the servers, links and what each server caches."""

    types: dict[str, TaskType]
    servers: tuple[Server, ...]
    links: dict[str, Link]
    requests: tuple[str, ...]
    cached: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class _Task:
    id: int
    server: int
    stage: Stage
    left_s: float
    warm: bool


@dataclass(frozen=True, slots=True)
class _State:
    now_s: float
    waiting: tuple[int, ...]
    running: tuple[_Task, ...]
    cached: tuple[tuple[tuple[str, float], ...], ...]
    spent_s: float  # summed latencies of the finished requests


@dataclass(frozen=True, slots=True)
class Best:
    """The least summed latency found; `proven` if the search ended before NODES_MAX."""

    total_s: float
    nodes: int
    proven: bool


def best(batch: Batch, at_most_s: float = math.inf) -> Best:
    """Search all schedules that start tasks at time 0 or when a stage ends, below `at_most_s` in all.

    Same physical model as the simulator, no scheduling period. Raises LanInputError above REQUESTS_MAX.
    """
    if len(batch.requests) > REQUESTS_MAX:
        raise LanInputError(
            f"{len(batch.requests)} requests are too many for the oracle.",
            "Nothing was searched.",
            f"Take at most {REQUESTS_MAX}.",
        )
    least, nodes = at_most_s, 0
    stack = [_begin(batch)]
    while stack and nodes < NODES_MAX:
        state = stack.pop()
        nodes += 1
        if not state.waiting and not state.running:
            least = min(least, state.spent_s)
            continue
        children = []
        for started in _choices(batch, state):
            if started.waiting and not started.running:
                continue
            child = _advance(batch, started)
            bound = _bound_s(batch, child)
            if bound < least - HAIR_S:
                children.append((bound, child))
        children.sort(key=lambda pair: -pair[0])
        stack += [child for bound, child in children if bound < least - HAIR_S]
    return Best(least, nodes, not stack)


def run_policy(batch: Batch, policy: Policy) -> float:
    """Summed latencies if `policy` decides at time 0 and whenever a stage ends; infinite if it gives up."""
    state, types = _begin(batch), batch.types
    for _ in range(10 * len(batch.requests) + 10):
        if not state.waiting and not state.running:
            return state.spent_s
        queue = [Request(i, i, batch.requests[i], 0.0) for i in state.waiting]
        decision = policy(_as_lan(batch, state), queue, state.now_s, Correction())
        for placement in decision.placed:
            server = next(k for k, s in enumerate(batch.servers) if s.name == placement.server)
            if _fits(batch, state, types[placement.request.type], server):
                state = _start(batch, state, placement.request.id, server)
        if not state.running:
            return math.inf
        state = _advance(batch, state)
    return math.inf


def _begin(batch: Batch) -> _State:
    cached = tuple(tuple((name, 0.0) for name in sorted(held)) for held in batch.cached)
    return _State(0.0, tuple(range(len(batch.requests))), (), cached, 0.0)


def _choices(batch: Batch, state: _State) -> Iterator[_State]:
    """Every way to start some of the waiting requests now; equal types choose in order of server."""
    stay = len(batch.servers)
    by_type = sorted(state.waiting, key=lambda i: batch.requests[i])
    for targets in itertools.product(range(stay + 1), repeat=len(by_type)):
        pairs = list(zip(by_type, targets, strict=True))
        if any(
            batch.requests[i] == batch.requests[j] and s > t for (i, s), (j, t) in itertools.pairwise(pairs)
        ):
            continue
        chosen: _State | None = state
        for i, server in pairs:
            if server == stay:
                continue
            if chosen is None or not _fits(batch, chosen, batch.types[batch.requests[i]], server):
                chosen = None
                break
            chosen = _start(batch, chosen, i, server)
        if chosen is not None:
            yield chosen


def _fits(batch: Batch, state: _State, kind: TaskType, server: int) -> bool:
    names = [batch.requests[task.id] for task in state.running if task.server == server]
    free_mb = batch.servers[server].memory_mb - pinned_mb(batch.types, names)
    return batch.servers[server].gpu in kind.cells and need_mb(kind, kind.name in names) <= free_mb


def _start(batch: Batch, state: _State, i: int, server: int) -> _State:
    kind, held = batch.types[batch.requests[i]], dict(state.cached[server])
    warm = kind.name in held
    if warm:
        held[kind.name] = state.now_s
    load_s = kind.warm_s if warm else kind.load_s
    stage: Stage = "load" if load_s > 0.0 else "infer"
    left_s = load_s or kind.cells[batch.servers[server].gpu].infer_s
    running = (*state.running, _Task(i, server, stage, left_s, warm))
    names = [batch.requests[task.id] for task in running if task.server == server]
    idle_mb = sum(batch.types[name].shared_mb for name in held if name not in names)
    excess_mb = pinned_mb(batch.types, names) + idle_mb - batch.servers[server].memory_mb
    for name in evict(batch.types, held, names, excess_mb):
        del held[name]
    cached = (*state.cached[:server], tuple(held.items()), *state.cached[server + 1 :])
    return _State(state.now_s, tuple(k for k in state.waiting if k != i), running, cached, state.spent_s)


def _advance(batch: Batch, state: _State) -> _State:
    """Let time pass until the next stage ends."""
    compute = [0.0] * len(batch.servers)
    mbps = dict.fromkeys(batch.links, 0.0)
    for task in state.running:
        kind, server = batch.types[batch.requests[task.id]], batch.servers[task.server]
        traffic = (
            kind.infer_mbps if task.stage == "infer" else (kind.warm_mbps if task.warm else kind.load_mbps)
        )
        if task.stage == "infer":
            compute[task.server] += kind.cells[server.gpu].compute
        for link in server.links:
            mbps[link] += traffic
    factors = []
    for task in state.running:
        if task.stage == "infer":
            total = compute[task.server]
            factors.append(latency_factor(total, GAMMA_COMPUTE) if total > 1.0 + HAIR_S else 1.0)
        else:
            links = batch.servers[task.server].links
            factors.append(
                max(latency_factor(mbps[n] / batch.links[n].capacity_mbps, GAMMA_LINK) for n in links)
            )
    step_s = min(task.left_s * factor for task, factor in zip(state.running, factors, strict=True))
    return _end_stages(batch, state, factors, step_s)


def _end_stages(batch: Batch, state: _State, factors: Sequence[float], step_s: float) -> _State:
    now_s, spent_s = state.now_s + step_s, state.spent_s
    running, cached = [], [dict(held) for held in state.cached]
    for task, factor in zip(state.running, factors, strict=True):
        left_s, name = task.left_s - step_s / factor, batch.requests[task.id]
        if left_s > HAIR_S:
            running.append(_Task(task.id, task.server, task.stage, left_s, task.warm))
        elif task.stage == "load":
            cached[task.server][name] = now_s
            infer_s = batch.types[name].cells[batch.servers[task.server].gpu].infer_s
            running.append(_Task(task.id, task.server, "infer", infer_s, task.warm))
        else:
            spent_s += now_s
            if name in cached[task.server]:
                cached[task.server][name] = now_s
    return _State(
        now_s, state.waiting, tuple(running), tuple(tuple(held.items()) for held in cached), spent_s
    )


def _bound_s(batch: Batch, state: _State) -> float:
    """Summed latencies if nothing contended from now on."""
    total = state.spent_s
    for task in state.running:
        total += state.now_s + task.left_s
        if task.stage == "load":
            total += batch.types[batch.requests[task.id]].cells[batch.servers[task.server].gpu].infer_s
    for i in state.waiting:
        kind = batch.types[batch.requests[i]]
        total += state.now_s + min(
            cell.infer_s for gpu, cell in kind.cells.items() if any(s.gpu == gpu for s in batch.servers)
        )
    return total


def _as_lan(batch: Batch, state: _State) -> LanState:
    servers = []
    for k, server in enumerate(batch.servers):
        running = []
        for task in state.running:
            if task.server != k:
                continue
            name = batch.requests[task.id]
            infer_s = batch.types[name].cells[server.gpu].infer_s
            load_left_s, infer_left_s = (task.left_s, infer_s) if task.stage == "load" else (0.0, task.left_s)
            request = Request(task.id, task.id, name, 0.0)
            running.append(Running(request, task.stage, load_left_s, infer_left_s, task.warm))
        servers.append(ServerState(server, tuple(running), dict(state.cached[k])))
    return LanState(batch.types, batch.links, tuple(servers))
