"""The simulated LAN: clients in closed loops, shared links and GPUs, caches, heartbeats, faults."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from umsh.lan.cluster import Placement, Request, Server
from umsh.lan.errors import StaleHeartbeatError, UnknownServerError
from umsh.lan.heartbeat import Heartbeat
from umsh.lan.memory import evict, need_mb
from umsh.lan.predict import GAMMA_COMPUTE, GAMMA_LINK
from umsh.lan.scheduler import Scheduler
from umsh.lan.sim.beats import message
from umsh.lan.sim.parts import Done, Job, Node, Outcome, Path
from umsh.lan.sim.pool import Pool
from umsh.lan.sim.scenario import Scenario

EVENTS_MAX = 50_000_000


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
        self._heap: list[tuple[float, int, str, Any, int]] = []
        self._order = 0
        self._jobs: dict[int, Job] = {}
        self._next_run = [0] * len(scenario.clients)
        self._open = sum(map(len, scenario.clients))
        self._ids = 0
        for server in scenario.servers:
            self._build(server)

    def _build(self, server: Server) -> None:
        path = self.paths.get(server.links)
        if path is None:
            path = self.paths[server.links] = Path(server.links, Pool())
            for link in server.links:
                self.users[link].append(path)
        node = self.nodes[server.name] = Node(server, Pool(), path)
        held = self.scenario.cached.get(server.name, ()) if self.scenario.weight_cache else ()
        node.cached = dict.fromkeys(held, 0.0)
        self.scheduler.tracker.join(server, 0.0)

    def run(self) -> Outcome:
        """Simulate until every client has finished or was refused all its requests."""
        for client, start_s in enumerate(self.scenario.starts_s):
            self._push(start_s, "submit", client)
        phase = self.scenario.heartbeat_s / max(1, len(self.nodes))
        for i, node in enumerate(self.nodes.values()):
            self._heard(message(node, self.types, 0.0))
            self._push((i + 1) * phase, "beat", node)
        for failure in self.scenario.failures:
            self._push(failure.down_s, "down", self.nodes[failure.server])
            self._push(failure.up_s, "up", self.nodes[failure.server])
        self._push(self.scenario.tick_s, "tick", None)
        self._loop()
        self.outcome.end_s = self.now_s
        return self.outcome

    def _loop(self) -> None:
        handlers: dict[str, Callable[[Any], None]] = {
            "submit": self._submit,
            "beat": self._send_beat,
            "heard": self._heard,
            "tick": self._tick,
            "down": self._down,
            "up": self._up,
        }
        while self._open > 0 and self._heap and self.outcome.events < EVENTS_MAX:
            self.now_s, _, kind, item, version = heapq.heappop(self._heap)
            if kind == "pool":
                if version != item.version:
                    continue  # the pool changed after this event was scheduled
                self._finish(item)
            else:
                handlers[kind](item)
            self.outcome.events += 1

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
            if request.id in self._jobs:
                self._abort(self._jobs[request.id])
            self._open -= 1
            self._push(self.now_s, "submit", request.client)

    def _start(self, placement: Placement) -> None:
        request, node = placement.request, self.nodes[placement.server]
        if request.id in self._jobs:
            self._abort(self._jobs[request.id])  # placed again because its server fell silent
        if not node.up:
            return  # the scheduler has not noticed yet; it queues the request again when it does
        kind = self.types[request.type]
        cold = request.type not in node.cached
        load_s, mbps = (kind.load_s, kind.load_mbps) if cold else (kind.warm_s, kind.warm_mbps)
        job = Job(request, node, cold, self.now_s, load_s, mbps)
        self._jobs[request.id] = node.jobs[request.id] = job
        node.pinned_mb += need_mb(kind, request.type in node.counts)
        node.counts[request.type] = node.counts.get(request.type, 0) + 1
        if not cold:
            node.cached[request.type] = self.now_s
        self._make_room(node)
        if load_s > 0.0:
            self._traffic(node.path, mbps)
            self._pace(node.path)
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
        """Change the traffic on the path's links, hence the factor of every loading path that shares one."""
        for link in path.links:
            before = self.mbps[link]
            after = self.mbps[link] = max(0.0, before + mbps)
            capacity = self.capacity[link]
            if before > capacity or after > capacity:
                for other in self.users[link]:
                    if other.pool.heap:
                        self._pace(other)

    def _pace(self, path: Path) -> None:
        """Set the factor of the path's loads: equation 4 on its most crowded link."""
        factor = 1.0
        for link in path.links:
            factor = max(factor, GAMMA_LINK * self.mbps[link] / self.capacity[link])
        pool = path.pool
        if factor != pool.factor:
            pool.advance(self.now_s)
            pool.factor = factor
            self._reschedule(pool)

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
        del node.jobs[job.request.id], self._jobs[job.request.id]
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
        beat = message(node, self.types, self.now_s)
        self._push(self.now_s + self.scenario.heartbeat_delay_s, "heard", beat)

    def _heard(self, beat: Heartbeat) -> None:
        try:
            self.scheduler.beat(beat, self.now_s)
        except UnknownServerError:
            node = self.nodes[beat.server]
            if node.up:
                self.scheduler.tracker.join(node.server, self.now_s)
                self.scheduler.beat(beat, self.now_s)
        except StaleHeartbeatError:
            return

    def _down(self, node: Node) -> None:
        node.up = False
        for job in list(node.jobs.values()):
            self._abort(job)
        node.cached = {}

    def _abort(self, job: Job) -> None:
        """End a job without a result; its request is the scheduler's to place again."""
        node, kind = job.node, self.types[job.request.type]
        if job.stage == "load":
            self._traffic(node.path, -job.load_mbps)
            node.path.pool.advance(self.now_s)
            node.path.pool.remove(job)
            self._reschedule(node.path.pool)
        else:
            self._traffic(node.path, -kind.infer_mbps)
            node.gpu.remove(job)
            self._occupy(node, -kind.cells[node.server.gpu].compute)
        self._release(job)

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
