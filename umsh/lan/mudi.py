"""Mudi-style placement: after the published abstract of Mudi (EuroSys'25); no code of it is public."""

from __future__ import annotations

import math
from collections.abc import Sequence

from umsh.lan.baselines import greedy
from umsh.lan.board import Board, Lane
from umsh.lan.cluster import Decision, LanState, Request
from umsh.lan.correct import Correction

SLO_FACTOR = 3.0


def knee_slope() -> float:
    """k * u / L of the least-squares line L + k (u - x) through L * u / x on [u/3, u], zero at x = u.

    With z = x/u: integral of (1/z - 1)(1 - z) over integral of (1 - z)^2 on [1/3, 1]; the same for all types.
    """
    low = 1.0 / 3.0
    top = math.log(1.0 / low) - 2.0 * (1.0 - low) + (1.0 - low * low) / 2.0
    return top / ((1.0 - low) ** 3 / 3.0)


SLOPE = knee_slope()


def slowdown(occupancy: float, share_left: float) -> float:
    """Piecewise-linear latency over that alone: 1 while the share left covers the occupancy, then linear."""
    if occupancy <= 0.0 or share_left >= occupancy:
        return 1.0
    return 1.0 + SLOPE * (1.0 - max(0.0, share_left) / occupancy)


def step(
    state: LanState,
    queue: Sequence[Request],
    now_s: float,
    correction: Correction | None = None,
    slo_factor: float = SLO_FACTOR,
    prefer_cache: bool = False,
) -> Decision:
    """Place each request where the summed relative slowdown of residents and newcomer is least.

    A server where any of them would exceed `slo_factor` is not feasible. Links and caches are ignored;
    `prefer_cache` (not in Mudi) takes a feasible server that holds the weights first.
    """
    board = Board(state)
    occupancies = {
        entry.server.name: [_occupancy(board, entry.server.name, task.request.type) for task in entry.running]
        for entry in state.servers
    }

    def choose(request: Request, lanes: Sequence[Lane]) -> Lane | None:
        kind, best, least = board.types[request.type], None, math.inf
        for lane in lanes:
            if not board.fits(lane, kind):
                continue
            every = [*occupancies[lane.server.name], _occupancy(board, lane.server.name, kind.name)]
            total = sum(every)
            slowdowns = [slowdown(u, 1.0 - (total - u)) for u in every]
            if max(slowdowns) <= slo_factor and sum(slowdowns) < least:
                best, least = lane, sum(slowdowns)
        if best is not None:
            occupancies[best.server.name].append(_occupancy(board, best.server.name, kind.name))
        return best

    return greedy(
        board,
        queue,
        now_s,
        choose,
        "least summed slowdown",
        "every server would break the goal or its memory",
        prefer_cache,
    )


def _occupancy(board: Board, server: str, name: str) -> float:
    cell = board.cell(board.lanes[server], name)
    return cell.compute if cell is not None else 0.0
