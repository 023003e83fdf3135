"""The experiments of docs/lan.md: each yields scenarios and the policies to run in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from umsh.lan.cluster import Link, Server
from umsh.lan.policies import PLAIN, WITHOUT
from umsh.lan.profiles import ROUTER, Profiles, load_profiles, variants
from umsh.lan.sim.scenario import Failure, Scenario, fill_caches, misprofiled, paper_setup

SEEDS = 30
FRESH_FROM = 1000
SEEDS_BEYOND = 10
SEEDS_SCALE = 3
MAIN = ("umsh", "gleam", "fgd", "mudi")


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario of an experiment, the label of its row, and the policies that run in it."""

    experiment: str
    label: str
    scenario: Scenario
    policies: tuple[str, ...]


def paper(seeds: int = SEEDS) -> Iterator[Case]:
    """Table 6's set-ups with empty and with filled caches (figures 18 to 20)."""
    profiles = load_profiles()
    for start in ("warm", "cold"):
        for gpus in (1, 2, 3, 4):
            for seed in range(seeds):
                yield Case("paper", f"{gpus} GPU {start}", paper_setup(profiles, gpus, seed, start), PLAIN)


def fresh(seeds: int = SEEDS) -> Iterator[Case]:
    """4 GPUs on seeds that were not looked at while `umsh` was developed."""
    profiles = load_profiles()
    for start in ("warm", "cold"):
        for seed in range(FRESH_FROM, FRESH_FROM + seeds):
            yield Case("fresh", f"4 GPU {start}", paper_setup(profiles, 4, seed, start), MAIN)


def ablation(seeds: int = SEEDS) -> Iterator[Case]:
    """4 GPUs: umsh without each term, Gleam's link constraint, baselines that prefer cached weights."""
    profiles = load_profiles()
    policies = (*WITHOUT, "umsh-no-correct", "gleam-loads-only", "fgd+cache", "mudi+cache")
    for start in ("warm", "cold"):
        for seed in range(seeds):
            yield Case("ablation", f"4 GPU {start}", paper_setup(profiles, 4, seed, start), policies)
    for seed in range(seeds):
        scenario = replace(paper_setup(profiles, 4, seed, "cold"), weight_cache=False)
        yield Case("ablation", "4 GPU no weight cache", scenario, ("umsh", "gleam", "fgd"))


def assumed(seeds: int = SEEDS_BEYOND) -> Iterator[Case]:
    """4 GPUs with the other readings of the RTX 4070 row, and with fewer or more requests a client."""
    for variant in variants():
        profiles = load_profiles(variant)
        for seed in range(seeds):
            yield Case("assumed", f"4070 row {variant}", paper_setup(profiles, 4, seed), MAIN)
    profiles = load_profiles()
    for runs in (2, 15):
        for seed in range(seeds):
            yield Case(
                "assumed", f"{runs} requests a client", paper_setup(profiles, 4, seed, runs=runs), MAIN
            )


def beyond(seeds: int = SEEDS_BEYOND) -> Iterator[Case]:
    """4 GPUs with unequal links, failures, wrong profiles, bad heartbeats, changing types, starvation."""
    profiles = load_profiles()
    for seed in range(seeds):
        for start in ("warm", "cold"):
            base = paper_setup(profiles, 4, seed, start)
            yield Case("beyond", f"unequal links {start}", _unequal_links(base), MAIN)
        base = paper_setup(profiles, 4, seed)
        failures = (Failure("s1", 60.0, 180.0), Failure("s3", 200.0, 300.0))
        yield Case("beyond", "failures", replace(base, failures=failures), MAIN)
        wrong = misprofiled(base, 0.3)
        yield Case("beyond", "occupancy off by 30 %", wrong, (*MAIN, "umsh-no-correct"))
        lossy = replace(base, heartbeat_loss=0.3, heartbeat_delay_s=0.5)
        yield Case("beyond", "heartbeats 30 % lost, 0.5 s late", lossy, MAIN)
        yield Case("beyond", "types change", _changing_types(base), MAIN)
        yield Case("beyond", "starvation", starvation(profiles, seed), (*MAIN, "umsh-no-guard"))


def scale(seeds: int = SEEDS_SCALE) -> Iterator[Case]:
    """100 servers and 1,000 clients: 1 Gb/s to each server behind a 10 Gb/s core."""
    profiles = load_profiles()
    for seed in range(seeds):
        yield Case("scale", "100 servers x 1000 clients", large(profiles, 100, 1000, 2, seed), MAIN)


# Each takes the number of seeds; its default is what the committed results have.
EXPERIMENTS: dict[str, Callable[..., Iterator[Case]]] = {
    "paper": paper,
    "fresh": fresh,
    "ablation": ablation,
    "assumed": assumed,
    "beyond": beyond,
    "scale": scale,
}


def large(profiles: Profiles, servers: int, clients: int, runs: int, seed: int) -> Scenario:
    """`servers` servers of the four models in turn, each with its own uplink behind one core link; warm."""
    rng = random.Random(f"{seed}/large")
    models = profiles.servers
    placed = tuple(
        Server(f"s{i:03d}", models[i % 4].gpu, models[i % 4].memory_mb, (f"up{i:03d}", "core"))
        for i in range(servers)
    )
    links = (Link("core", 10_000.0), *(Link(f"up{i:03d}", 1000.0) for i in range(servers)))
    names = sorted(profiles.types)
    loops = tuple((rng.choice(names),) * runs for _ in range(clients))
    return Scenario(
        name=f"{servers} servers x {clients} clients",
        types=profiles.types,
        truth=profiles.types,
        servers=placed,
        links=links,
        clients=loops,
        starts_s=tuple(rng.uniform(0.0, 5.0) for _ in loops),
        cached=fill_caches(profiles.types, placed, rng),
        seed=seed,
    )


def starvation(profiles: Profiles, seed: int) -> Scenario:
    """Fourteen clients keep small cached types running, one wants sd3, which no server holds.

    The small inferences hold the link above 1 - 0.80 (15 x 8 %), so the strict constraint never lets the
    load start while they last.
    """
    rng = random.Random(f"{seed}/starvation")
    small = ["whisper-large-v3", "llama3B-ggml", "fno-pytorch"]
    types = {name: profiles.types[name] for name in sorted([*small, "sd3-medium-t5"])}
    loops = (*((rng.choice(small),) * 40 for _ in range(14)), ("sd3-medium-t5",) * 2)
    return Scenario(
        name="starvation",
        types=types,
        truth=types,
        servers=profiles.servers,
        links=(Link(ROUTER, 1000.0),),
        clients=loops,
        starts_s=(*(rng.uniform(0.0, 5.0) for _ in range(14)), 5.0),
        cached={server.name: tuple(small) for server in profiles.servers},
        seed=seed,
    )


def _unequal_links(base: Scenario) -> Scenario:
    """A 2.5 Gb/s router; two servers wired with 1 and 2.5 Gb/s, two over Wi-Fi with 300 and 600 Mb/s."""
    ways = {"s0": "wire-1000", "s1": "wire-2500", "s2": "wifi-300", "s3": "wifi-600"}
    servers = tuple(replace(server, links=(ways[server.name], ROUTER)) for server in base.servers)
    links = (Link(ROUTER, 2500.0), *(Link(name, float(name.split("-")[1])) for name in ways.values()))
    return replace(base, servers=servers, links=links)


def _changing_types(base: Scenario) -> Scenario:
    """Each request draws its type anew instead of one type for each client."""
    rng = random.Random(f"{base.seed}/changing")
    names = sorted(base.types)
    return replace(base, clients=tuple(tuple(rng.choice(names) for _ in loop) for loop in base.clients))
