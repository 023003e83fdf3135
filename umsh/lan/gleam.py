"""Gleam's two-phase scheduler: Algorithm 1 and equation 6, as printed and no more."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import islice

from umsh.lan.board import TOLERANCE, Board, Lane
from umsh.lan.cluster import Cell, Decision, LanState, Placement, Request
from umsh.lan.correct import Correction
from umsh.lan.predict import GAMMA_COMPUTE, newcomer_s
from umsh.lan.screen import NO_SERVER, by_memory, screen

# Servers that a reason for waiting lists; a large LAN has more.
SHOWN = 8


def group_size(occupancy: float, load: float, pending: int) -> int:
    """Equation 6: the largest g with g * Pc + sum Pc <= 1, at most `pending`."""
    if occupancy <= 0.0:
        return pending
    return max(0, min(pending, int((1.0 - load) / occupancy + TOLERANCE)))


def step(
    state: LanState,
    queue: Sequence[Request],
    now_s: float,
    correction: Correction | None = None,
    loads_only: bool = False,
) -> Decision:
    """One scheduling step over the queue; `correction` is not used (the paper has none).

    `loads_only` leaves the traffic of inferences out of the link's utilisation; the paper counts all of it.

    Phase 1 places types whose weights some server holds, in groups, where predicted computation latency is
    least. Phase 2 places the rest where the link has room and memory is free; whatever is left waits.
    """
    board = Board(state)
    pending, refused = screen(board, queue, now_s)
    placed: list[Placement] = []
    for name in by_memory(board, pending):
        placed += _with_cache(board, name, pending[name])
    for name in by_memory(board, pending):
        placed += _without_cache(board, name, pending[name], loads_only)
    waiting = []
    for name, left in pending.items():
        if left:
            reason = why(board, name)
            waiting += [(request, reason) for request in left]
    return Decision(tuple(placed), tuple(waiting), tuple(refused))


def _with_cache(board: Board, name: str, left: list[Request]) -> list[Placement]:
    """Phase 1 for one type; removes what it places from `left`."""
    kind, placed = board.types[name], []
    heap = []
    for order, lane in enumerate(board.lanes.values()):
        if name in lane.cached and (option := _option(board, lane, name, len(left))):
            heap.append((option[0], order, option[1], lane))
    heapq.heapify(heap)
    while heap and left:
        latency_s, order, group, lane = heapq.heappop(heap)
        for request in left[:group]:
            board.place(lane, request, cold=False)
            reason = f"weights cached, group of {min(group, len(left))}, least predicted computation latency"
            placed.append(Placement(request, lane.server.name, "infer", latency_s, reason))
        del left[:group]
        if left and (option := _option(board, lane, kind.name, len(left))):
            heapq.heappush(heap, (option[0], order, option[1], lane))
    return placed


def _option(board: Board, lane: Lane, name: str, pending: int) -> tuple[float, int] | None:
    cell = board.cell(lane, name)
    if cell is None:
        return None
    group = group_size(cell.compute, lane.occupancy, board.room(lane, board.types[name], pending))
    if group == 0:
        return None
    return newcomer_s(lane.inferring, cell.compute, cell.infer_s, group, GAMMA_COMPUTE), group


def _without_cache(board: Board, name: str, left: list[Request], loads_only: bool) -> list[Placement]:
    """Phase 2 for one type; removes what it places from `left`."""
    kind, placed = board.types[name], []
    while left:
        best: tuple[float, Lane, Cell] | None = None
        for lane in board.lanes.values():
            cell = board.cell(lane, name)
            if cell is None or name in lane.cached or name in lane.loading or board.room(lane, kind, 1) == 0:
                continue
            if not board.link_has_room(lane, kind.load_mbps, loads_only):
                continue
            latency_s = newcomer_s(lane.inferring, cell.compute, cell.infer_s, 1, GAMMA_COMPUTE)
            if best is None or latency_s < best[0]:
                best = latency_s, lane, cell
        if best is None:
            break
        latency_s, lane, _ = best
        request = left.pop(0)
        board.place(lane, request, cold=True)
        reason = "no server with the weights is free, the link has room, least predicted computation latency"
        placed.append(Placement(request, lane.server.name, "load", kind.load_s + latency_s, reason))
    return placed


def why(board: Board, name: str) -> str:
    """Why a request of the type waits, from the board as the step left it."""
    if not board.lanes:
        return NO_SERVER
    kind, reasons = board.types[name], []
    for lane in islice(board.lanes.values(), SHOWN):
        cell, where = board.cell(lane, name), lane.server.name
        if cell is None or lane.server.memory_mb < kind.memory_mb:
            reasons.append(f"{where}: too small or not profiled")
        elif board.room(lane, kind, 1) == 0:
            reasons.append(f"{where}: memory full ({lane.free_mb:.0f} MiB free)")
        elif name in lane.cached:
            reasons.append(f"{where}: compute full ({lane.occupancy:.2f} + {cell.compute:.2f} > 1)")
        elif name in lane.loading:
            reasons.append(f"{where}: weights are loading")
        else:
            reasons.append(f"{where}: link full for a load of {kind.load_mbps:.0f} Mb/s")
    return "; ".join(reasons)
