"""The parts of the simulated LAN and what a run gives: jobs, nodes, paths, finished requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from umsh.lan.cluster import Request, Server, Stage
from umsh.lan.sim.pool import Pool


@dataclass(slots=True, eq=False)
class Job:
    """A placed request: where it is, what it still has to do, and when what happened to it."""

    request: Request
    node: Node
    cold: bool
    placed_s: float
    load_s: float
    load_mbps: float
    stage: Stage = "load"
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
