"""A scheduler's working copy of the LAN: tentative placements change it, the input state stays as it was."""

from __future__ import annotations

from umsh.lan.cluster import Cell, LanState, Request, Server, TaskType
from umsh.lan.correct import Correction
from umsh.lan.memory import evict, need_mb

# Float sums of occupancies such as 0.7 + 0.3 must still count as full.
TOLERANCE = 1e-9


class Lane:
    """One server on the board."""

    __slots__ = (
        "allocated",
        "cached",
        "cells",
        "counts",
        "ends_s",
        "inferring",
        "last_use",
        "loading",
        "occupancy",
        "pinned_mb",
        "server",
        "tasks",
    )

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cells: dict[str, Cell | None] = {}
        self.cached: set[str] = set()
        self.last_use: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.inferring: list[tuple[float, float]] = []  # (occupancy, standalone seconds left)
        self.ends_s: list[float] | None = None  # predicted ends of `inferring`, until one is added
        self.loading: dict[str, float] = {}  # type -> standalone loading seconds left
        self.occupancy = 0.0  # compute occupancies of the present stages; a loading task counts 0 (table 5)
        self.allocated = 0.0  # compute occupancies of all tasks, as if each held its share from the start
        self.pinned_mb = 0.0
        self.tasks = 0

    @property
    def free_mb(self) -> float:
        """MiB that are free or hold only unused weights."""
        return self.server.memory_mb - self.pinned_mb


class Board:
    """Lanes, link loads in Mb/s, and the profiles as corrected."""

    def __init__(self, state: LanState, correction: Correction | None = None) -> None:
        self.types = state.types
        self.away = state.away
        self.capacity = {name: link.capacity_mbps for name, link in state.links.items()}
        self.load_mbps = dict.fromkeys(state.links, 0.0)
        self.all_mbps = dict.fromkeys(state.links, 0.0)
        # (occupancy of the link, standalone seconds left) of each load on it
        self.loads: dict[str, list[tuple[float, float]]] = {link: [] for link in state.links}
        self.correction = correction or Correction()
        self.lanes = {entry.server.name: Lane(entry.server) for entry in state.servers}
        for entry in state.servers:
            lane = self.lanes[entry.server.name]
            lane.last_use = dict(entry.cached)
            lane.cached = set(entry.cached)
            for task in entry.running:
                self._add(
                    lane,
                    task.request.type,
                    task.stage == "load",
                    task.load_left_s,
                    task.infer_left_s,
                    task.warm,
                )

    def cell(self, lane: Lane, name: str) -> Cell | None:
        """The corrected profile of a type on the lane's GPU; None if it cannot run there."""
        if name in lane.cells:
            return lane.cells[name]
        cell = self.types[name].cells.get(lane.server.gpu)
        if cell is not None:
            cell = self.correction.cell((name, lane.server.gpu), cell)
        lane.cells[name] = cell
        return cell

    def fits(self, lane: Lane, kind: TaskType) -> bool:
        """Whether one more task of the type has memory here, and a profile on this GPU."""
        return self.cell(lane, kind.name) is not None and self.room(lane, kind, 1) == 1

    def room(self, lane: Lane, kind: TaskType, wanted: int) -> int:
        """How many of `wanted` more tasks of the type the memory holds; weights count once."""
        left = lane.free_mb - need_mb(kind, kind.name in lane.counts)
        if left < 0.0 or wanted < 1:
            return 0
        if kind.private_mb == 0.0:
            return wanted
        return min(wanted, 1 + int(left / kind.private_mb + TOLERANCE))

    def could_ever_fit(self, kind: TaskType) -> bool:
        """Whether some server, present or away for the moment, could hold the type if it were empty."""
        if any(kind.memory_mb <= server.memory_mb and server.gpu in kind.cells for server in self.away):
            return True
        return any(
            self.cell(lane, kind.name) is not None and lane.server.memory_mb >= kind.memory_mb
            for lane in self.lanes.values()
        )

    def link_has_room(self, lane: Lane, mbps: float, loads_only: bool) -> bool:
        """Phase 2's constraint on every link of the path: utilisation + occupancy < 1 (strict)."""
        used = self.load_mbps if loads_only else self.all_mbps
        return all(used[link] + mbps < self.capacity[link] for link in lane.server.links)

    def place(self, lane: Lane, request: Request, cold: bool) -> None:
        """Put the request on the lane; cold tasks load over the link first."""
        kind = self.types[request.type]
        cell = self.cell(lane, request.type)
        infer_s = cell.infer_s if cell is not None else 0.0
        load_s = kind.load_s if cold else kind.warm_s
        self._add(lane, request.type, load_s > 0.0, load_s, infer_s, not cold)
        for name in self.evicted(lane):
            lane.cached.discard(name)
            lane.last_use.pop(name, None)

    def evicted(self, lane: Lane, more_mb: float = 0.0) -> list[str]:
        """Types whose unused weights leave the lane if `more_mb` MiB are pinned in addition."""
        idle_mb = sum(self.types[name].shared_mb for name in lane.cached if name not in lane.counts)
        excess_mb = lane.pinned_mb + more_mb + idle_mb - lane.server.memory_mb
        return evict(self.types, lane.last_use, lane.counts, excess_mb) if excess_mb > 0.0 else []

    def _add(self, lane: Lane, name: str, loading: bool, load_s: float, infer_s: float, warm: bool) -> None:
        kind, cell = self.types[name], self.cell(lane, name)
        occupancy = cell.compute if cell is not None else 0.0
        lane.pinned_mb += need_mb(kind, name in lane.counts)
        lane.counts[name] = lane.counts.get(name, 0) + 1
        lane.tasks += 1
        lane.allocated += occupancy
        mbps = kind.infer_mbps
        if loading:
            mbps = kind.warm_mbps if warm else kind.load_mbps
            if not warm:
                lane.loading[name] = min(load_s, lane.loading.get(name, load_s))
            for link in lane.server.links:
                self.load_mbps[link] += mbps
                self.loads[link].append((mbps / self.capacity[link], load_s))
        if not loading or warm:
            lane.occupancy += occupancy
            lane.inferring.append((occupancy, infer_s))
            lane.ends_s = None
        for link in lane.server.links:
            self.all_mbps[link] += mbps
