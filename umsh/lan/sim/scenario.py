"""What a simulation is given: the LAN, its clients, caches at the start, faults and wrong profiles."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from umsh.lan.cluster import Cell, Link, Server, TaskType
from umsh.lan.errors import LanInputError, check_number
from umsh.lan.profiles import ROUTER, Profiles

# Paper table 6: servers, clients, task types.
SETUPS = {1: (1, 3, 3), 2: (2, 7, 4), 3: (3, 10, 6), 4: (4, 15, 6)}
RUNS = 5  # requests of a client, one after the other; the paper says "multiple" (assumed)


@dataclass(frozen=True, slots=True)
class Failure:
    """A server that is gone from `down_s` to `up_s` and comes back with an empty GPU."""

    server: str
    down_s: float
    up_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulated experiment. `types` is what schedulers believe, `truth` what happens.

    `clients` lists for each client the task types it runs one after the other; client i starts at
    `starts_s[i]`. `cached` maps a server to the types whose weights it holds at the start.
    """

    name: str
    types: Mapping[str, TaskType]
    truth: Mapping[str, TaskType]
    servers: tuple[Server, ...]
    links: tuple[Link, ...]
    clients: tuple[tuple[str, ...], ...]
    starts_s: tuple[float, ...]
    cached: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    tick_s: float = 1.0
    heartbeat_s: float = 1.0
    heartbeat_delay_s: float = 0.002
    heartbeat_loss: float = 0.0
    weight_cache: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.starts_s) != len(self.clients):
            raise LanInputError(
                "clients and start times differ in number.", "Nothing was simulated.", "Match them."
            )
        for what in ("tick_s", "heartbeat_s"):
            if check_number(getattr(self, what), what) == 0.0:
                raise LanInputError(f"{what} is 0.", "The simulation would not advance.", "Give a period.")
        check_number(self.heartbeat_loss, "heartbeat loss", 0.0, 1.0)


def paper_setup(profiles: Profiles, gpus: int, seed: int, start: str = "warm", runs: int = RUNS) -> Scenario:
    """Table 6's set-up with 1-4 servers.

    The paper names neither the types in use nor what is cached when a run begins; the seed draws the types
    (each used by at least one client), who runs which, the start of each client in the first 5 s, and for
    `start="warm"` which weights are resident (each server is filled with types in random order while they
    fit). `start="cold"` begins with empty servers.
    """
    if gpus not in SETUPS:
        raise LanInputError(
            f"there is no set-up with {gpus!r} GPUs.", "Nothing was simulated.", "Take 1 to 4."
        )
    n_servers, n_clients, n_types = SETUPS[gpus]
    rng = random.Random(f"{seed}/{gpus}")
    servers = profiles.servers[:n_servers]
    names = rng.sample(sorted(profiles.types), n_types)
    drawn = [*names, *(rng.choice(names) for _ in range(n_clients - n_types))]
    rng.shuffle(drawn)
    types = {name: profiles.types[name] for name in sorted(names)}
    return Scenario(
        name=f"{gpus}-GPU {start}",
        types=types,
        truth=types,
        servers=servers,
        links=(Link(ROUTER, 1000.0),),
        clients=tuple((name,) * runs for name in drawn),
        starts_s=tuple(rng.uniform(0.0, 5.0) for _ in drawn),
        cached=fill_caches(types, servers, rng) if start == "warm" else {},
        seed=seed,
    )


def fill_caches(
    types: Mapping[str, TaskType], servers: tuple[Server, ...], rng: random.Random
) -> dict[str, tuple[str, ...]]:
    """Weights of types in random order on each server while they fit, as long use would leave them."""
    cached = {}
    for server in servers:
        free, held = server.memory_mb, []
        for name in rng.sample(sorted(types), len(types)):
            kind = types[name]
            if server.gpu in kind.cells and kind.memory_mb <= server.memory_mb and kind.shared_mb <= free:
                held.append(name)
                free -= kind.shared_mb
        cached[server.name] = tuple(held)
    return cached


def misprofiled(scenario: Scenario, error: float) -> Scenario:
    """The same experiment with true occupancies off by up to +-`error` from what the schedulers believe."""
    check_number(error, "profile error", 0.0, 1.0)
    rng = random.Random(f"{scenario.seed}/misprofiled")
    truth = {}
    for name, kind in scenario.truth.items():
        cells = {
            gpu: Cell(min(1.0, cell.compute * (1.0 + rng.choice((-error, error)))), cell.infer_s, cell.mark)
            for gpu, cell in kind.cells.items()
        }
        truth[name] = replace(kind, cells=cells)
    return replace(scenario, name=f"{scenario.name}, occupancy off by {error:.0%}", truth=truth)
