"""Why each request went where it did or waits: a decision laid out server by server."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.table import Table

from umsh.lan.board import Board
from umsh.lan.cluster import Decision, LanState, Link, Request, Running, Server, ServerState, Stage
from umsh.lan.errors import LanInputError
from umsh.lan.predict import GAMMA_COMPUTE, latencies_s
from umsh.lan.profiles import load_profiles

STATE_NBYTES_MAX = 16 << 20


class RunningFile(msgspec.Struct, frozen=True):
    """A running task in a state file."""

    type: str
    stage: Stage
    infer_left_s: float
    load_left_s: float = 0.0
    warm: bool = False


class ServerFile(msgspec.Struct, frozen=True):
    """A server in a state file."""

    name: str
    gpu: str
    memory_mb: float
    links: tuple[str, ...]
    cached: tuple[str, ...] = ()
    running: tuple[RunningFile, ...] = ()


class RequestFile(msgspec.Struct, frozen=True):
    """A waiting request in a state file."""

    type: str
    submit_s: float = 0.0


class StateFile(msgspec.Struct, frozen=True):
    """What `umsh-sched explain FILE` reads: time, links in Mb/s, servers and the queue."""

    links: dict[str, float]
    servers: tuple[ServerFile, ...]
    queue: tuple[RequestFile, ...]
    now_s: float = 0.0


def read_state(path: Path) -> tuple[LanState, list[Request], float]:
    """Read a state file (JSON); LanInputError if it is malformed."""
    if path.stat().st_size > STATE_NBYTES_MAX:
        raise LanInputError(
            f"{path.name} is larger than {STATE_NBYTES_MAX} bytes.", "It was not read.", "Shorten it."
        )
    try:
        file = msgspec.json.decode(path.read_bytes(), type=StateFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LanInputError(
            f"{path.name} is not a state file: {error}.", "It was not read.", "See docs/lan.md."
        ) from error
    number, servers = len(file.queue), []
    for entry in file.servers:
        running = []
        for task in entry.running:
            request = Request(number, number, task.type, 0.0)
            running.append(Running(request, task.stage, task.load_left_s, task.infer_left_s, task.warm))
            number += 1
        server = Server(entry.name, entry.gpu, entry.memory_mb, entry.links)
        servers.append(ServerState(server, tuple(running), dict.fromkeys(entry.cached, 0.0)))
    links = {name: Link(name, mbps) for name, mbps in file.links.items()}
    queue = [Request(i, i, entry.type, entry.submit_s) for i, entry in enumerate(file.queue)]
    return LanState(load_profiles().types, links, tuple(servers)), queue, file.now_s


def servers_table(state: LanState) -> Table:
    """One row a server: memory, occupancy, what runs and what is cached, before the step."""
    table = Table(title="servers before the step")
    for heading in ("server", "GPU", "free/MiB", "occupancy", "drains in/s", "runs", "weights cached"):
        table.add_column(heading)
    board = Board(state)
    for entry in state.servers:
        lane = board.lanes[entry.server.name]
        drain_s = max(latencies_s(lane.inferring, GAMMA_COMPUTE), default=0.0)
        runs = ", ".join(f"{task.request.type} ({task.stage})" for task in entry.running)
        table.add_row(
            entry.server.name,
            entry.server.gpu,
            f"{lane.free_mb:.0f}",
            f"{lane.occupancy:.2f}",
            f"{drain_s:.1f}",
            runs or "-",
            ", ".join(sorted(lane.cached)) or "-",
        )
    return table


def links_table(state: LanState) -> Table:
    """One row a link: capacity, loads and all traffic."""
    table = Table(title="links before the step")
    for heading in ("link", "capacity/Mb/s", "loads/Mb/s", "all/Mb/s"):
        table.add_column(heading, justify="left" if heading == "link" else "right")
    board = Board(state)
    for name, mbps in board.capacity.items():
        table.add_row(name, f"{mbps:.0f}", f"{board.load_mbps[name]:.0f}", f"{board.all_mbps[name]:.0f}")
    return table


def decision_table(decision: Decision, now_s: float) -> Table:
    """One row a request: where it goes or that it waits or is refused, and why."""
    table = Table(title="decision")
    for heading in ("request", "type", "waited/s", "goes to", "first stage", "predicted cost/s", "why"):
        table.add_column(heading, overflow="fold")
    rows: list[tuple[Request, str, str, str, str]] = [
        (item.request, item.server, item.phase, f"{item.predicted_s:.1f}", item.reason)
        for item in decision.placed
    ]
    rows += [(request, "waits", "-", "-", why) for request, why in decision.waiting]
    rows += [(request, "refused", "-", "-", why) for request, why in decision.refused]
    for request, where, phase, cost, why in sorted(rows, key=lambda row: row[0].id):
        table.add_row(
            str(request.id), request.type, f"{now_s - request.submit_s:.0f}", where, phase, cost, why
        )
    return table


def as_data(decision: Decision) -> dict[str, object]:
    """The same content for --json."""
    data = msgspec.to_builtins(decision)
    assert isinstance(data, dict)
    return data
