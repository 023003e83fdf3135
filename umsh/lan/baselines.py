"""Baselines without a model of contention: least loaded and random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from umsh.lan.board import Board, Lane
from umsh.lan.cluster import Decision, LanState, Placement, Request
from umsh.lan.correct import Correction
from umsh.lan.screen import NO_SERVER, Policy, first_come, screen


def greedy(
    board: Board,
    queue: Sequence[Request],
    now_s: float,
    choose: Callable[[Request, Sequence[Lane]], Lane | None],
    reason: str,
    full: str,
    prefer_cache: bool = False,
) -> Decision:
    """Place requests first come first served, none blocking the next, each where `choose` says.

    `prefer_cache` offers the servers that hold the weights first, and all only if none of them is feasible.
    """
    pending, refused = screen(board, queue, now_s)
    placed, waiting, lanes = [], [], list(board.lanes.values())
    blocked: set[str] = set()  # a type that found no place finds none later in the same step
    for request in first_come(pending):
        lane = None
        if request.type not in blocked:
            if prefer_cache:
                lane = choose(request, [lane for lane in lanes if request.type in lane.cached])
            lane = lane or choose(request, lanes)
        if lane is None:
            blocked.add(request.type)
            waiting.append((request, full if board.lanes else NO_SERVER))
            continue
        kind, cold = board.types[request.type], request.type not in lane.cached
        cell = board.cell(lane, request.type)
        alone_s = (kind.load_s if cold else kind.warm_s) + (cell.infer_s if cell else 0.0)
        board.place(lane, request, cold)
        placed.append(Placement(request, lane.server.name, "load" if cold else "infer", alone_s, reason))
    return Decision(tuple(placed), tuple(waiting), tuple(refused))


def fair_step(
    state: LanState, queue: Sequence[Request], now_s: float, correction: Correction | None = None
) -> Decision:
    """Least-loaded fair: the server with the fewest tasks that has the memory; blind to contention."""
    board = Board(state)

    def choose(request: Request, lanes: Sequence[Lane]) -> Lane | None:
        kind = board.types[request.type]
        fitting = [lane for lane in lanes if board.fits(lane, kind)]
        return min(fitting, key=lambda lane: lane.tasks, default=None)

    return greedy(board, queue, now_s, choose, "fewest tasks", "no server has the memory")


def random_policy(seed: int) -> Policy:
    """A policy that takes a random server with the memory; the same seed gives the same run."""
    rng = random.Random(seed)

    def step(
        state: LanState, queue: Sequence[Request], now_s: float, correction: Correction | None = None
    ) -> Decision:
        board = Board(state)

        def choose(request: Request, lanes: Sequence[Lane]) -> Lane | None:
            kind = board.types[request.type]
            fitting = [lane for lane in lanes if board.fits(lane, kind)]
            return rng.choice(fitting) if fitting else None

        return greedy(board, queue, now_s, choose, "random", "no server has the memory")

    return step
