"""The `umsh` policy: Gleam's two phases by predicted total time, with bounded waiting and correction."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from umsh.lan.board import Board, Lane
from umsh.lan.cluster import Decision, LanState, Placement, Request, Stage, TaskType
from umsh.lan.correct import Correction
from umsh.lan.gleam import group_size, why
from umsh.lan.memory import need_mb
from umsh.lan.predict import GAMMA_COMPUTE, GAMMA_LINK, latencies_s, start_later_s, start_now_s
from umsh.lan.screen import Policy, screen
from umsh.lan.terms import GUARD_ALONE, LINK_SHARERS_MAX, REUSE_HALF_S, Terms


def policy(terms: Terms | None = None) -> Policy:
    """The policy as one pure function of state, queue, time and correction."""
    chosen = terms or Terms()

    def step(
        state: LanState, queue: Sequence[Request], now_s: float, correction: Correction | None = None
    ) -> Decision:
        return _Step(Board(state, correction), chosen, now_s).run(queue)

    return step


class _Step:
    """One step in progress: the board, what is decided, and what urgent requests reserved."""

    def __init__(self, board: Board, terms: Terms, now_s: float) -> None:
        self.board = board
        self.terms = terms
        self.now_s = now_s
        self.placed: list[Placement] = []
        self.waits: dict[int, str] = {}
        self.reserved_lane: Lane | None = None
        self.reserved_links: set[str] = set()
        self.link_room: dict[tuple[str, str], bool] = {}  # (link, type) -> room for a load, until one starts
        self.backlog_s: dict[str, float] = {}  # lane -> seconds promised to requests that wait for it
        self.copies: dict[str, int] = {}
        for lane in board.lanes.values():
            for name in lane.cached | lane.loading.keys():
                self.copies[name] = self.copies.get(name, 0) + 1

    def run(self, queue: Sequence[Request]) -> Decision:
        pending, refused = screen(self.board, queue, self.now_s)
        self.crowd = sum(map(len, pending.values())) / max(1, len(self.board.lanes))
        self.load_crowd = float(sum(1 for name in pending if name not in self.copies))
        urgent = self._urgent(pending)
        for request in urgent:
            self._place_urgent(request, pending[request.type])
        for name in sorted(pending, key=lambda name: -self.board.types[name].memory_mb):
            self._with_cache(name, pending[name])
        for name in sorted(pending, key=lambda name: self._load_order(name, len(pending[name]))):
            self._load(name, pending[name])
        waiting = []
        for name, left in pending.items():
            reason = why(self.board, name) if left else ""
            waiting += [(request, self.waits.get(request.id, reason)) for request in left]
        return Decision(tuple(self.placed), tuple(waiting), tuple(refused))

    # The starvation guard

    def _urgent(self, pending: dict[str, list[Request]]) -> list[Request]:
        late = [
            request
            for name, left in pending.items()
            for request in left
            if self.now_s - request.submit_s >= self._bound_s(name)
        ]
        return sorted(late, key=lambda request: (request.submit_s, request.id))

    def _bound_s(self, name: str) -> float:
        """After what wait a request is overdue: guard_s, or a few times its time alone if that is more."""
        kind = self.board.types[name]
        alone_s = min(cell.infer_s for cell in kind.cells.values())
        if name not in self.copies:
            alone_s += kind.load_s
        return max(self.terms.guard_s, GUARD_ALONE * alone_s)

    def _place_urgent(self, request: Request, left: list[Request]) -> None:
        """Place an overdue request where it can run; the oldest that cannot keeps a server for itself."""
        name, best, least = request.type, None, math.inf
        for lane in self.board.lanes.values():
            cost = self._urgent_cost(lane, name)
            if cost < least and lane is not self.reserved_lane:
                best, least = lane, cost
        if best is not None:
            self._take(best, request, least, f"waited {self.now_s - request.submit_s:.0f} s, goes first")
            left.remove(request)
        elif self.reserved_lane is None and not any(
            name in lane.loading for lane in self.board.lanes.values()
        ):
            self._reserve(name)
            if self.reserved_lane is not None:
                where = self.reserved_lane.server.name
                self.waits[request.id] = f"waited past {self.terms.guard_s:g} s; {where} is kept free for it"

    def _urgent_cost(self, lane: Lane, name: str) -> float:
        kind, cell = self.board.types[name], self.board.cell(lane, name)
        if cell is None or self.board.room(lane, kind, 1) == 0 or name in lane.loading:
            return math.inf
        if name in lane.cached:
            if lane.inferring and group_size(cell.compute, lane.occupancy, 1) == 0 and not self.terms.share:
                return math.inf
            return self._now_s(lane, cell.compute, cell.infer_s)
        if name in self.copies or not self._link_free(lane, kind):
            return math.inf
        return kind.load_s + self._now_s(lane, cell.compute, cell.infer_s)

    def _reserve(self, name: str) -> None:
        """Keep the lane that frees soonest, and its links if the weights have to be loaded."""
        kind = self.board.types[name]
        lanes = [
            lane
            for lane in self.board.lanes.values()
            if self.board.cell(lane, name) is not None and lane.server.memory_mb >= kind.memory_mb
        ]
        if not lanes:
            return
        lane = min(lanes, key=lambda lane: (name not in lane.cached, self._drain_s(lane)))
        self.reserved_lane = lane
        if name not in lane.cached and name not in lane.loading:
            self.reserved_links.update(lane.server.links)
            self.link_room.clear()

    # Phase 1

    def _with_cache(self, name: str, left: list[Request]) -> None:
        heap = []
        for order, lane in enumerate(self.board.lanes.values()):
            if name in lane.cached and lane is not self.reserved_lane:
                cost = self._cached_cost(lane, name, left)
                if cost < math.inf:
                    heap.append((cost, order, lane))
        heapq.heapify(heap)
        while heap and left:
            cost, order, lane = heap[0]
            self._take(lane, left.pop(0), cost, "weights cached, least predicted total time")
            cost = self._cached_cost(lane, name, left) if name in lane.cached else math.inf
            if cost < math.inf:
                heapq.heapreplace(heap, (cost, order, lane))
            else:
                heapq.heappop(heap)

    def _cached_cost(self, lane: Lane, name: str, left: list[Request]) -> float:
        """Seconds added to all on the lane by one more task now; infinite if it should wait."""
        kind, cell = self.board.types[name], self.board.cell(lane, name)
        if cell is None or self.board.room(lane, kind, 1) == 0:
            return math.inf
        cost = self._now_s(lane, cell.compute, cell.infer_s)
        if group_size(cell.compute, lane.occupancy, 1):
            return cost
        if not self.terms.share or not left:
            return math.inf
        waited_s = self.now_s - left[0].submit_s if self.terms.aging else 0.0
        later_s = start_later_s(
            lane.inferring,
            cell.compute,
            cell.infer_s,
            GAMMA_COMPUTE,
            self.crowd,
            waited_s,
            self._ends_s(lane),
        )
        return cost if cost < later_s else math.inf

    def _now_s(self, lane: Lane, u: float, r: float) -> float:
        return start_now_s(lane.inferring, u, r, GAMMA_COMPUTE, self._ends_s(lane))

    # Phase 2

    def _load_order(self, name: str, waiting: int) -> tuple[float, float]:
        kind = self.board.types[name]
        if not self.terms.short_first:
            return 0.0, -kind.memory_mb
        return (1.0 if name in self.copies else 0.0), kind.load_s / max(1, waiting)

    def _load(self, name: str, left: list[Request]) -> None:
        kind = self.board.types[name]
        options = self._load_options(name) if left else []
        waits = self._waits(name) if self.terms.weigh and options else []
        for request in list(left):
            if not options:
                return
            cost, _, lane = options[0]
            if waits and waits[0][0] <= cost:
                self._wait(request, waits, kind.load_s)
                continue
            heapq.heappop(options)
            if not self._link_free(lane, kind):
                continue
            self._take(lane, request, cost, "not cached where there is room, the link has room")
            left.remove(request)
            self.copies[name] = self.copies.get(name, 0) + 1
            if self.terms.weigh:
                heapq.heappush(waits, self._wait_entry(lane, name, len(self.board.lanes) + len(self.placed)))

    def _load_options(self, name: str) -> list[tuple[float, int, Lane]]:
        """A heap of (cost in s, order, lane) of the servers that could load the weights now."""
        heap, free = [], {}
        for order, lane in enumerate(self.board.lanes.values()):
            links = lane.server.links
            if links not in free:
                free[links] = self._link_free(lane, self.board.types[name])
            if free[links] and (cost := self._load_cost(lane, name)) < math.inf:
                heap.append((cost, order, lane))
        heapq.heapify(heap)
        return heap

    def _load_cost(self, lane: Lane, name: str) -> float:
        kind, cell = self.board.types[name], self.board.cell(lane, name)
        if cell is None or lane is self.reserved_lane or name in lane.cached or name in lane.loading:
            return math.inf
        if self.board.room(lane, kind, 1) == 0:
            return math.inf
        cost = kind.load_s + latencies_s([*lane.inferring, (cell.compute, cell.infer_s)], GAMMA_COMPUTE)[-1]
        if self.terms.keep:
            for other in self.board.evicted(lane, need_mb(kind, name in lane.counts)):
                idle_s = self.now_s - lane.last_use.get(other, 0.0)
                only = 1.0 if self.copies.get(other, 0) < 2 else 0.5
                cost += only * self.board.types[other].load_s * 0.5 ** (idle_s / REUSE_HALF_S)
        return cost

    def _waits(self, name: str) -> list[tuple[float, int, float, Lane]]:
        """A heap of (seconds until a waiting request of the type would end, order, its work in s, lane)."""
        heap = [
            self._wait_entry(lane, name, order)
            for order, lane in enumerate(self.board.lanes.values())
            if name in lane.cached or name in lane.loading
        ]
        heapq.heapify(heap)
        return heap

    def _wait_entry(self, lane: Lane, name: str, order: int) -> tuple[float, int, float, Lane]:
        cell = self.board.cell(lane, name)
        if cell is None:
            return math.inf, order, 0.0, lane
        start_s = max(self._drain_s(lane), lane.loading.get(name, 0.0))
        ends_s = start_s + self.backlog_s.get(lane.server.name, 0.0) + cell.infer_s
        return ends_s, order, GAMMA_COMPUTE * cell.compute * cell.infer_s, lane

    def _wait(self, request: Request, waits: list[tuple[float, int, float, Lane]], load_s: float) -> None:
        """Let the request wait for the soonest of `waits`, and the next one behind it."""
        ends_s, order, work_s, lane = waits[0]
        heapq.heapreplace(waits, (ends_s + work_s, order, work_s, lane))
        where = lane.server.name
        self.backlog_s[where] = self.backlog_s.get(where, 0.0) + work_s
        self.waits[request.id] = f"about {ends_s:.0f} s through {where} beats loading {load_s:.0f} s"

    # Shared

    def _drain_s(self, lane: Lane) -> float:
        return max(self._ends_s(lane), default=0.0)

    def _ends_s(self, lane: Lane) -> list[float]:
        if lane.ends_s is None:
            lane.ends_s = latencies_s(lane.inferring, GAMMA_COMPUTE)
        return lane.ends_s

    def _link_free(self, lane: Lane, kind: TaskType) -> bool:
        """Whether a load of the type may start on every link of the lane's path."""
        for link in lane.server.links:
            key = link, kind.name
            if key not in self.link_room:
                self.link_room[key] = self._room_on(link, kind)
            if not self.link_room[key]:
                return False
        return True

    def _room_on(self, link: str, kind: TaskType) -> bool:
        used = self.board.load_mbps if self.terms.loads_only else self.board.all_mbps
        if link in self.reserved_links:
            return False
        if used[link] + kind.load_mbps < self.board.capacity[link]:
            return True
        loads, u = self.board.loads[link], kind.load_mbps / self.board.capacity[link]
        if not self.terms.share_link or not 0 < len(loads) < LINK_SHARERS_MAX:
            return False
        later_s = start_later_s(loads, u, kind.load_s, GAMMA_LINK, self.load_crowd)
        return start_now_s(loads, u, kind.load_s, GAMMA_LINK) < later_s

    def _take(self, lane: Lane, request: Request, predicted_s: float, reason: str) -> None:
        phase: Stage = "infer" if request.type in lane.cached else "load"
        self.board.place(lane, request, phase == "load")
        self.link_room.clear()
        self.placed.append(Placement(request, lane.server.name, phase, predicted_s, reason))
