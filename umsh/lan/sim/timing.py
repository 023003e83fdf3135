"""How long a scheduling step and a simulated event take on this machine: measured."""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Iterator

from umsh.lan.cluster import LanState, Link, Request, Running, Server, ServerState
from umsh.lan.correct import Correction
from umsh.lan.policies import make
from umsh.lan.profiles import load_profiles
from umsh.lan.sim.experiments import large
from umsh.lan.sim.results import Row
from umsh.lan.sim.run import world

REPEATS = 15
POLICIES = ("umsh", "gleam", "fgd", "mudi", "fair")


def busy_lan(requests: int, servers: int, seed: int, running: int = 2) -> tuple[LanState, list[Request]]:
    """A LAN with filled caches, `running` tasks on each server, and a queue of random types."""
    profiles, rng = load_profiles(), random.Random(f"{seed}/busy")
    states, number = [], requests
    for i in range(servers):
        model = profiles.servers[i % len(profiles.servers)]
        server = Server(f"s{i:03d}", model.gpu, model.memory_mb, ("core",))
        free_mb, cached = server.memory_mb, {}
        for name in rng.sample(sorted(profiles.types), len(profiles.types)):
            kind = profiles.types[name]
            if server.gpu in kind.cells and kind.memory_mb <= free_mb:
                cached[name] = 0.0
                free_mb -= kind.shared_mb
        tasks = []
        for _ in range(running):
            name = rng.choice(sorted(cached))
            left_s = rng.random() * profiles.types[name].cells[server.gpu].infer_s
            tasks.append(Running(Request(number, number, name, 0.0), "infer", 0.0, left_s, True))
            number += 1
        states.append(ServerState(server, tuple(tasks), cached))
    queue = [Request(i, i, rng.choice(sorted(profiles.types)), 10.0 * rng.random()) for i in range(requests)]
    link = Link("core", 1000.0 if servers <= 4 else 10_000.0)
    return LanState(profiles.types, {"core": link}, tuple(states)), queue


def measure() -> Iterator[Row]:
    """Median CPU time of steps (idle and busy LANs) and of simulated events."""
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    for requests, servers in ((15, 4), (1000, 100)):
        for running in (0, 2):
            state, queue = busy_lan(requests, servers, 0, running)
            for name in POLICIES:
                policy, times = make(name).policy, []
                for _ in range(REPEATS):
                    start = time.process_time()
                    policy(state, queue, 10.0, Correction())
                    times.append(1e3 * (time.process_time() - start))
                yield _row(f"step {requests} x {servers}, {running} running each", name, "ms", times, machine)
    for servers, clients, runs in ((4, 15, 100), (100, 1000, 1)):
        for name in POLICIES if servers == 4 else ("umsh", "gleam", "fair"):
            times = []
            for seed in range(3):
                lan = world(large(load_profiles(), servers, clients, runs, seed), name)
                start = time.process_time()
                outcome = lan.run()
                times.append((time.process_time() - start) / outcome.events * 1e6)
            what = f"million events, {clients} clients x {servers} servers"
            yield _row(what, name, "s", times, machine)


def _row(what: str, policy: str, unit: str, times: list[float], machine: str) -> Row:
    return {
        "what": what,
        "policy": policy,
        "unit": unit,
        "median": f"{statistics.median(times):.3f}",
        "min": f"{min(times):.3f}",
        "max": f"{max(times):.3f}",
        "n": str(len(times)),
        "clock": "process CPU time",
        "machine": machine,
    }
