"""The things that are scheduled and where: task types, requests, links, servers and their state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from umsh.lan.errors import LanInputError, check_number

Mark = Literal["published", "assumed"]
Stage = Literal["load", "infer"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One task type alone on one GPU model: occupancy in [0, 1] and inference seconds (paper figure 27)."""

    compute: float
    infer_s: float
    mark: Mark = "published"

    def __post_init__(self) -> None:
        check_number(self.compute, "compute occupancy", 0.0, 1.0)
        check_number(self.infer_s, "inference time in s")


@dataclass(frozen=True, slots=True)
class TaskType:
    """What offline profiling knows of a task type (paper tables 2, 17, 18 and figure 27).

    `load_s` is the cold loading time alone at `load_mbps`; `warm_s` what is left of it when the server
    holds the shareable weights. `shared_mb` counts once a server, `private_mb` once a task. `cells` maps a
    GPU model to its cell; a model that is absent cannot run the type.
    """

    name: str
    load_s: float
    load_mbps: float
    shared_mb: float
    private_mb: float
    cells: Mapping[str, Cell]
    warm_s: float = 0.0
    warm_mbps: float = 0.0
    infer_mbps: float = 0.0
    syncs: int = 100

    def __post_init__(self) -> None:
        for what in ("load_s", "load_mbps", "shared_mb", "private_mb", "warm_s", "warm_mbps", "infer_mbps"):
            check_number(getattr(self, what), f"{what} of task type {self.name!r}")
        check_number(self.syncs, f"synchronise count of task type {self.name!r}", 1)
        if not self.cells:
            raise LanInputError(
                f"task type {self.name!r} has no profile on any GPU.",
                "It cannot be scheduled.",
                "Profile it on one server.",
            )

    @property
    def memory_mb(self) -> float:
        """GPU memory of one task alone, MiB."""
        return self.shared_mb + self.private_mb


@dataclass(frozen=True, slots=True)
class Request:
    """One run of a task type asked for by a client at `submit_s`."""

    id: int
    client: int
    type: str
    submit_s: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.submit_s < math.inf:
            check_number(self.submit_s, f"submit time of request {self.id}")


@dataclass(frozen=True, slots=True)
class Link:
    """A shared way to servers (router, uplink, Wi-Fi cell) with its capacity in Mb/s."""

    name: str
    capacity_mbps: float

    def __post_init__(self) -> None:
        if check_number(self.capacity_mbps, f"capacity of link {self.name!r} in Mb/s") == 0.0:
            raise LanInputError(
                f"link {self.name!r} has capacity 0.", "Nothing can be loaded over it.", "Leave the link out."
            )


@dataclass(frozen=True, slots=True)
class Server:
    """A GPU server: its GPU model, memory in MiB and the names of the links on the way to it."""

    name: str
    gpu: str
    memory_mb: float
    links: tuple[str, ...]

    def __post_init__(self) -> None:
        check_number(self.memory_mb, f"GPU memory of server {self.name!r} in MiB")


@dataclass(frozen=True, slots=True)
class Running:
    """A task placed on a server: its stage and the standalone seconds left of each stage."""

    request: Request
    stage: Stage
    load_left_s: float
    infer_left_s: float
    warm: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.load_left_s < math.inf:
            check_number(self.load_left_s, f"loading time left of request {self.request.id}")
        if not 0.0 <= self.infer_left_s < math.inf:
            check_number(self.infer_left_s, f"inference time left of request {self.request.id}")


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a scheduler knows of a server: running tasks, resident weights (type -> last use), utilisation."""

    server: Server
    running: tuple[Running, ...] = ()
    cached: Mapping[str, float] = field(default_factory=dict)
    utilisation: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.utilisation <= 1.0:
            check_number(self.utilisation, f"GPU utilisation of server {self.server.name!r}", 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class LanState:
    """The input of one scheduling step besides the queue: types, links, present servers and those away."""

    types: Mapping[str, TaskType]
    links: Mapping[str, Link]
    servers: tuple[ServerState, ...]
    away: tuple[Server, ...] = ()

    def __post_init__(self) -> None:
        names = [state.server.name for state in self.servers]
        if len(names) != len(set(names)):
            raise LanInputError(
                "two servers have one name.", "Placements would be ambiguous.", "Register each server once."
            )
        for state in self.servers:
            for link in state.server.links:
                if link not in self.links:
                    raise LanInputError(
                        f"server {state.server.name!r} is reached over the unknown link {link!r}.",
                        "Its bandwidth cannot be planned.",
                        "Add the link to the state.",
                    )
            for task in state.running:
                self.type_of(task.request)

    def type_of(self, request: Request) -> TaskType:
        """Return the profile of the request's type; LanInputError if the type is unknown."""
        found = self.types.get(request.type)
        if found is None:
            raise LanInputError(
                f"request {request.id} is of the unknown task type {request.type!r}.",
                "It was not scheduled.",
                "Profile the type first.",
            )
        return found


@dataclass(frozen=True, slots=True)
class Placement:
    """A request sent to a server, in which phase, with the predicted seconds and the reason."""

    request: Request
    server: str
    phase: Stage
    predicted_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one step: placements, and for every other request why it waits or is refused."""

    placed: tuple[Placement, ...] = ()
    waiting: tuple[tuple[Request, str], ...] = ()
    refused: tuple[tuple[Request, str], ...] = ()
