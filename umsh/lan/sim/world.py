"""The simulated LAN: clients in closed loops, links and GPUs shared by processors, caches, heartbeats, faults."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from umsh.lan.cluster import Decision, Placement, Request, Server
from umsh.lan.errors import StaleHeartbeat, UnknownServer
from umsh.lan.heartbeat import Heartbeat, Progress
from umsh.lan.memory import evict, need_mb
from umsh.lan.predict import GAMMA_COMPUTE, GAMMA_LINK
from umsh.lan.scheduler import Scheduler
from umsh.lan.sim.pool import Pool
from umsh.lan.sim.scenario import Scenario

EVENTS_MAX = 50_000_000


@dataclass(slots=True, eq=False)
class Job:
    """A placed request: where it is, what it still has to do, and when what happened to it."""

    request: Request
    node: Node
    cold: bool
    placed_s: float
    load_s: float
    load_mbps: float
    stage: str = "load"
    finish: float = 0.0
    infer_from_s: float = 0.0
    crowded: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """A server that works: its GPU pool, its path's load pool, weights and memory."""

    server: Server
    gpu: Pool
    path: Path
    boot: int = 0
    seq: int = 0
    up: bool = True
    occupancy: float = 0.0
    pinned_mb: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    cached: dict[str, float] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Path:
    """The links to one or more servers; its loads advance at the rate of the most crowded link."""

    links: tuple[str, ...]
    pool: Pool


@dataclass(frozen=True, slots=True)
class Done:
    """One finished request; times in simulated seconds."""

    client: int
    type: str
    server: str
    cold: bool
    submit_s: float
    placed_s: float
    infer_from_s: float
    end_s: float


@dataclass(slots=True)
class Outcome:
    """What a simulation gave: finished and refused requests, events handled, time of the last event."""

    done: list[Done] = field(default_factory=list)
    refused: list[tuple[Request, str]] = field(default_factory=list)
    events: int = 0
    end_s: float = 0.0
    steps: int = 0
    decisions: list[Decision] = field(default_factory=list)


class World:
    """Runs one scenario under one scheduler. Deterministic for a scenario and a policy."""

    def __init__(self, scenario: Scenario, scheduler: Scheduler) -> None:
        self.scenario = scenario
        self.scheduler = scheduler
        self.types = scenario.truth
        self.rng = random.Random(scenario.seed)
        self.now_s = 0.0
        self.outcome = Outcome()
        self.capacity = {link.name: link.capacity_mbps for link in scenario.links}
        self.mbps = dict.fromkeys(self.capacity, 0.0)
        self.paths: dict[tuple[str, ...], Path] = {}
        self.users: dict[str, list[Path]] = {link: [] for link in self.capacity}
        self.nodes: dict[str, Node] = {}
        self._heap: list[tuple[float, int, str, object, int]] = []
        self._order = 0
        self._next_run = [0] * len(scenario.clients)
        self._open = sum(map(len, scenario.clients))
        self._ids = 0
        self._tick_at = -1.0
        for server in scenario.servers:
            self._build(server)

    def _build(self, server: Server) -> None:
        path = self.paths.get(server.links)
        if path is None:
            path = self.paths[server.links] = Path(server.links, Pool())
            for link in server.links:
                self.users[link].append(path)
        node = self.nodes[server.name] = Node(server, Pool(), path)
        if self.scenario.weight_cache:
            node.cached = dict.fromkeys(self.scenario.cached.get(server.name, ()), 0.0)
        self.scheduler.tracker.join(server, 0.0)

    def run(self) -> Outcome:
        """Simulate until every client has finished or was refused all its requests."""
        for client, start_s in enumerate(self.scenario.starts_s):
            self._push(start_s, "submit", client)
        phase = self.scenario.heartbeat_s / max(1, len(self.nodes))
        for i, node in enumerate(self.nodes.values()):
            self._beat(node)
            self._push((i + 1) * phase, "beat", node)
        for failure in self.scenario.failures:
            self._push(failure.down_s, "down", self.nodes[failure.server])
            self._push(failure.up_s, "up", self.nodes[failure.server])
        self._push(self.scenario.tick_s, "tick", None)
        handlers = {
            "submit": self._submit,
            "beat": self._send_beat,
            "heard": self._heard,
            "tick": self._tick,
            "down": self._down,
            "up": self._up,
        }
        outcome = self.outcome
        while self._open and self._heap:
            self.now_s, _, kind, item, version = heapq.heappop(self._heap)
            if kind == "pool":
                pool: Pool = item  # type: ignore[assignment]
                if version != pool.version:
                    continue
                self._finish(pool)
            else:
                handlers[kind](item)  # type: ignore[arg-type]
            outcome.events += 1
            if outcome.events > EVENTS_MAX:
                break
        outcome.end_s = self.now_s
        return outcome

    # Clients and the scheduler

    def _submit(self, client: int) -> None:
        runs = self.scenario.clients[client]
        at = self._next_run[client]
        if at >= len(runs):
            return
        self._next_run[client] = at + 1
        self.scheduler.submit(Request(self._ids, client, runs[at], self.now_s))
        self._ids += 1

    def _tick(self, _: None) -> None:
        self._push(self.now_s + self.scenario.tick_s, "tick", None)
        self.step()

    def step(self) -> None:
        """One scheduling step, and its placements carried out."""
        if not self.scheduler.queue and not self.scenario.failures:
            return
        decision = self.scheduler.step(self.now_s)
        self.outcome.steps += 1
        for placement in decision.placed:
            self._start(placement)
        for request, reason in decision.refused:
            self.outcome.refused.append((request, reason))
            self._open -= 1
            self._push(self.now_s, "submit", request.client)

    def _start(self, placement: Placement) -> None:
        request, node = placement.request, self.nodes[placement.server]
        if not node.up:
            return  # the scheduler has not noticed yet; it queues the request again when it does
        kind = self.types[request.type]
        cold = request.type not in node.cached
        load_s, mbps = (kind.load_s, kind.load_mbps) if cold else (kind.warm_s, kind.warm_mbps)
        job = Job(request, node, cold, self.now_s, load_s, mbps)
        node.jobs[request.id] = job
        node.pinned_mb += need_mb(kind, request.type in node.counts)
        node.counts[request.type] = node.counts.get(request.type, 0) + 1
        if not cold:
            node.cached[request.type] = self.now_s
        self._make_room(node)
        if load_s > 0.0:
            self._traffic(node.path, mbps)
            pool = node.path.pool
            pool.advance(self.now_s)
            job.finish = pool.add(self._next(), job, load_s)
            self._reschedule(pool)
        else:
            self._infer(job)

    # Stages

    def _finish(self, pool: Pool) -> None:
        pool.advance(self.now_s)
        job: Job = pool.pop()
        node = job.node
        if job.stage == "load":
            self._traffic(node.path, -job.load_mbps)
            self._reschedule(pool)
            if self.scenario.weight_cache:
                node.cached[job.request.type] = self.now_s
            self._infer(job)
            return
        kind = self.types[job.request.type]
        self._traffic(node.path, -kind.infer_mbps)
        self._occupy(node, -kind.cells[node.server.gpu].compute)
        self._release(job)
        alone_s = None if job.crowded else self.now_s - job.infer_from_s
        self.scheduler.ended(job.request.id, self.now_s, alone_s)
        request = job.request
        self.outcome.done.append(
            Done(
                request.client, request.type, node.server.name, job.cold,
                request.submit_s, job.placed_s, job.infer_from_s, self.now_s,
            )
        )  # fmt: skip
        self._open -= 1
        self._submit(request.client)

    def _infer(self, job: Job) -> None:
        node, kind = job.node, self.types[job.request.type]
        cell = kind.cells[node.server.gpu]
        job.stage, job.infer_from_s = "infer", self.now_s
        self._traffic(node.path, kind.infer_mbps)
        node.gpu.advance(self.now_s)
        job.finish = node.gpu.add(self._next(), job, cell.infer_s)
        self._occupy(node, cell.compute)

    def _occupy(self, node: Node, occupancy: float) -> None:
        """Change the GPU's occupancy sum, hence the factor of all that run there."""
        gpu = node.gpu
        gpu.advance(self.now_s)
        node.occupancy += occupancy
        if not gpu.heap:
            node.occupancy = 0.0
        gpu.factor = max(1.0, GAMMA_COMPUTE * node.occupancy) if node.occupancy > 1.0 + 1e-9 else 1.0
        if gpu.factor > 1.0:
            for _, _, job in gpu.heap:
                job.crowded = True
        self._reschedule(gpu)

    def _traffic(self, path: Path, mbps: float) -> None:
        """Change the traffic on the path's links, hence the factor of every path that shares one."""
        for link in path.links:
            before = self.mbps[link]
            after = self.mbps[link] = max(0.0, before + mbps)
            capacity = self.capacity[link]
            if before <= capacity and after <= capacity:
                continue
            for other in self.users[link]:
                factor = max(GAMMA_LINK * self.mbps[name] / self.capacity[name] for name in other.links)
                factor = max(1.0, factor)
                if factor != other.pool.factor:
                    other.pool.advance(self.now_s)
                    other.pool.factor = factor
                    self._reschedule(other.pool)

    # Memory

    def _make_room(self, node: Node) -> None:
        idle_mb = sum(self.types[name].shared_mb for name in node.cached if name not in node.counts)
        excess_mb = node.pinned_mb + idle_mb - node.server.memory_mb
        if excess_mb > 0.0:
            for name in evict(self.types, node.cached, node.counts, excess_mb):
                del node.cached[name]

    def _release(self, job: Job) -> None:
        node, name = job.node, job.request.type
        kind = self.types[name]
        del node.jobs[job.request.id]
        left = node.counts[name] - 1
        if left:
            node.counts[name] = left
        else:
            del node.counts[name]
        node.pinned_mb -= need_mb(kind, left > 0)
        if name in node.cached:
            node.cached[name] = self.now_s

    # Heartbeats and faults

    def _send_beat(self, node: Node) -> None:
        self._push(self.now_s + self.scenario.heartbeat_s, "beat", node)
        if not node.up or self.rng.random() < self.scenario.heartbeat_loss:
            return
        self._push(self.now_s + self.scenario.heartbeat_delay_s, "heard", self._message(node))

    def _beat(self, node: Node) -> None:
        self._heard(self._message(node))

    def _heard(self, beat: Heartbeat) -> None:
        try:
            self.scheduler.beat(beat, self.now_s)
        except UnknownServer:
            node = self.nodes[beat.server]
            if node.up:
                self.scheduler.tracker.join(node.server, self.now_s)
                self.scheduler.beat(beat, self.now_s)
        except StaleHeartbeat:
            return

    def _message(self, node: Node) -> Heartbeat:
        node.seq += 1
        node.gpu.advance(self.now_s)
        node.path.pool.advance(self.now_s)
        return Heartbeat(
            node.server.name, node.boot, node.seq, self.now_s, node.server.gpu, node.server.memory_mb,
            node.server.links, max(0.0, min(1.0, node.occupancy)),
            tuple(self._progress(job) for job in node.jobs.values()),
            {name: self.now_s - used for name, used in node.cached.items()},
        )  # fmt: skip

    def _progress(self, job: Job) -> Progress:
        request, kind = job.request, self.types[job.request.type]
        sent = syncs = 0.0
        if job.stage == "load":
            sent = max(0.0, job.load_s - max(0.0, job.finish - job.node.path.pool.virtual))
        else:
            whole = kind.cells[job.node.server.gpu].infer_s
            left = max(0.0, job.finish - job.node.gpu.virtual)
            syncs = kind.syncs * (1.0 - min(1.0, left / whole)) if whole > 0.0 else kind.syncs
        return Progress(
            request.id, request.client, request.type, job.stage, request.submit_s,  # type: ignore[arg-type]
            sent, job.load_s, int(syncs), kind.syncs, not job.cold,
        )  # fmt: skip

    def _down(self, node: Node) -> None:
        node.up = False
        jobs = list(node.jobs.values())
        for job in jobs:
            kind = self.types[job.request.type]
            self._traffic(node.path, -(job.load_mbps if job.stage == "load" else kind.infer_mbps))
        node.path.pool.advance(self.now_s)
        node.path.pool.remove({id(job) for job in jobs})
        self._reschedule(node.path.pool)
        node.gpu = Pool()
        node.gpu.at_s = self.now_s
        node.occupancy = node.pinned_mb = 0.0
        node.counts, node.cached, node.jobs = {}, {}, {}

    def _up(self, node: Node) -> None:
        node.up, node.boot, node.seq = True, node.boot + 1, 0

    # Events

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _push(self, at_s: float, kind: str, item: object) -> None:
        heapq.heappush(self._heap, (at_s, self._next(), kind, item, 0))

    def _reschedule(self, pool: Pool) -> None:
        pool.version += 1
        if pool.heap:
            heapq.heappush(self._heap, (pool.next_s(), self._next(), "pool", pool, pool.version))
