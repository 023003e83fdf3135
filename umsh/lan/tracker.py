"""Who is there and what runs where: heartbeats and the scheduler's own placements made one state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from umsh.lan.cluster import LanState, Link, Placement, Request, Running, Server, ServerState, TaskType
from umsh.lan.errors import (
    LanInputError,
    RegistryError,
    StaleHeartbeatError,
    UnknownServerError,
    check_number,
)
from umsh.lan.heartbeat import Heartbeat, Progress, check
from umsh.lan.predict import remaining_infer_s, remaining_load_s

DEAD_AFTER_S = 5.0
AWAY_MAX = 1000


@dataclass(slots=True)
class _Seen:
    server: Server
    heard_s: float
    boot: int = -1
    seq: int = -1
    sent_s: float = 0.0
    running: tuple[Running, ...] = ()
    cached: dict[str, float] = field(default_factory=dict)
    utilisation: float = 0.0
    placed: dict[int, tuple[float, Running]] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)


class Tracker:
    """The membership table. Times are the caller's clock; every method takes `now_s`."""

    def __init__(
        self, types: Mapping[str, TaskType], links: Mapping[str, Link], dead_after_s: float = DEAD_AFTER_S
    ) -> None:
        self.types = dict(types)
        self.links = dict(links)
        self.dead_after_s = check_number(dead_after_s, "time after which a silent server is gone")
        self._seen: dict[str, _Seen] = {}
        self._away: dict[str, Server] = {}
        self._now_s = 0.0

    def join(self, server: Server, now_s: float) -> None:
        """Register a server; RegistryError if the name is taken, LanInputError if a link is unknown."""
        self._clock(now_s)
        if server.name in self._seen:
            raise RegistryError(
                f"server {server.name!r} is registered already.",
                "Nothing changed.",
                "Remove it first or rename it.",
            )
        for link in server.links:
            if link not in self.links:
                raise LanInputError(
                    f"server {server.name!r} names the unknown link {link!r}.",
                    "It was not added.",
                    "Add the link.",
                )
        self._seen[server.name] = _Seen(server, now_s)
        self._away.pop(server.name, None)

    def leave(self, name: str, now_s: float, silent: bool = False) -> list[Request]:
        """Remove a server; returns the requests that ran there, to be queued again.

        A `silent` one is expected back: requests that only it could hold wait rather than be refused.
        """
        self._clock(now_s)
        seen = self._known(name)
        del self._seen[name]
        if silent:
            self._away[name] = seen.server
            if len(self._away) > AWAY_MAX:
                del self._away[next(iter(self._away))]
        return _held(seen)

    def beat(self, beat: Heartbeat, now_s: float) -> list[Request]:
        """Take a heartbeat; returns the requests that it shows to be lost, to be queued again.

        Lost is what an earlier start of the daemon ran, and a placement that is not listed after
        `dead_after_s`.

        Raises UnknownServerError, LanInputError, and StaleHeartbeatError for a duplicate, an old one or a
        clock that went back.
        """
        check(beat)
        self._clock(now_s)
        seen = self._known(beat.server)
        if beat.boot == seen.boot and beat.seq <= seen.seq:
            raise StaleHeartbeatError(
                f"heartbeat {beat.seq} of {beat.server!r} is a duplicate or older than {seen.seq}.",
                "It was dropped.",
                "Nothing to do if the network repeats packets.",
            )
        if beat.boot == seen.boot and beat.sent_s < seen.sent_s:
            raise StaleHeartbeatError(
                f"the clock of {beat.server!r} went back from {seen.sent_s:g} s to {beat.sent_s:g} s.",
                "The heartbeat was dropped.",
                "Send a monotonic clock.",
            )
        if beat.boot < seen.boot:
            raise StaleHeartbeatError(
                f"heartbeat of an earlier start of {beat.server!r}.", "It was dropped.", "Nothing to do."
            )
        running = tuple(self._running(task, seen.server) for task in beat.tasks)
        listed = {task.request for task in beat.tasks}
        lost = _lost(seen, beat.boot != seen.boot, listed, now_s - self.dead_after_s)
        seen.boot, seen.seq, seen.sent_s, seen.heard_s = beat.boot, beat.seq, beat.sent_s, now_s
        seen.running, seen.utilisation = running, beat.utilisation
        seen.cached = {name: now_s - age_s for name, age_s in beat.cached.items() if name in self.types}
        gone = {request.id for request in lost}
        seen.placed = {
            key: entry for key, entry in seen.placed.items() if key not in listed and key not in gone
        }
        seen.ended = {key: at for key, at in seen.ended.items() if key in listed}
        return lost

    def placed(self, placement: Placement, now_s: float) -> None:
        """Remember a placement until a heartbeat lists it."""
        seen = self._known(placement.server)
        kind, cold = self.types[placement.request.type], placement.phase == "load"
        cell = kind.cells.get(seen.server.gpu)
        load_s = kind.load_s if cold else kind.warm_s
        task = Running(
            placement.request, "load" if load_s else "infer", load_s, cell.infer_s if cell else 0.0, not cold
        )
        seen.placed[placement.request.id] = (now_s, task)

    def ended(self, server: str, request: int, now_s: float) -> None:
        """A task ended; its server may still list it in the last heartbeat."""
        seen = self._known(server)
        seen.placed.pop(request, None)
        if any(task.request.id == request for task in seen.running):
            seen.ended[request] = now_s

    def gone(self, now_s: float) -> list[str]:
        """Names of servers that were silent for longer than `dead_after_s`."""
        self._clock(now_s)
        return [name for name, seen in self._seen.items() if now_s - seen.heard_s > self.dead_after_s]

    def heard_s(self, name: str) -> float:
        """When the server was last heard."""
        return self._known(name).heard_s

    def state(self) -> LanState:
        """The present servers with what is known to run on them."""
        servers = []
        for seen in self._seen.values():
            running = seen.running
            if seen.ended:
                running = tuple(task for task in running if task.request.id not in seen.ended)
            if seen.placed:
                running += tuple(task for _, task in seen.placed.values())
            servers.append(ServerState(seen.server, running, seen.cached, seen.utilisation))
        return LanState(self.types, self.links, tuple(servers), tuple(self._away.values()))

    def inferring(self, name: str) -> list[str]:
        """Types in inference on the server by its last heartbeat."""
        return [task.request.type for task in self._known(name).running if task.stage == "infer"]

    def server(self, name: str) -> Server:
        """The registered server of that name."""
        return self._known(name).server

    def _running(self, task: Progress, server: Server) -> Running:
        kind = self.types.get(task.type)
        if kind is None:
            raise LanInputError(
                f"server {server.name!r} runs the unknown task type {task.type!r}.",
                "Dropped.",
                "Profile the type.",
            )
        cell = kind.cells.get(server.gpu)
        load_s = kind.warm_s if task.warm else kind.load_s
        left_s = 0.0
        if task.stage == "load" and task.total_bytes > 0.0:
            left_s = remaining_load_s(task.sent_bytes, task.total_bytes, load_s)
        infer_s = remaining_infer_s(task.syncs, task.syncs_total, cell.infer_s if cell else 0.0)
        request = Request(task.request, task.client, task.type, task.submit_s)
        return Running(request, task.stage, left_s, infer_s, task.warm)

    def _known(self, name: str) -> _Seen:
        seen = self._seen.get(name)
        if seen is None:
            raise UnknownServerError(
                f"no server {name!r} is registered.", "The message was dropped.", "Let the server join first."
            )
        return seen

    def _clock(self, now_s: float) -> None:
        if check_number(now_s, "the time") < self._now_s:
            raise LanInputError(
                f"the time went back from {self._now_s:g} s to {now_s:g} s.",
                "Nothing changed.",
                "Use a monotonic clock.",
            )
        self._now_s = now_s


def _held(seen: _Seen) -> list[Request]:
    held = {task.request.id: task.request for task in seen.running if task.request.id not in seen.ended}
    held.update({key: task.request for key, (_, task) in seen.placed.items()})
    return list(held.values())


def _lost(seen: _Seen, restarted: bool, listed: set[int], oldest_s: float) -> list[Request]:
    """Requests that a heartbeat shows to be lost: of an earlier start, or placed long ago and not listed."""
    held = [task.request for at_s, task in seen.placed.values() if restarted or at_s <= oldest_s]
    if restarted:
        held += [task.request for task in seen.running if task.request.id not in seen.ended]
    return [request for request in held if request.id not in listed]
