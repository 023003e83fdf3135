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
    choose: Callable[[Request], Lane | None],
    reason: str,
    full: str,
) -> Decision:
    """Place requests first come first served, none blocking the next, each where `choose` says."""
    pending, refused = screen(board, queue, now_s)
    placed, waiting = [], []
    blocked: set[str] = set()  # a type that found no place finds none later in the same step
    for request in first_come(pending):
        lane = None if request.type in blocked else choose(request)
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

    def choose(request: Request) -> Lane | None:
        kind = board.types[request.type]
        lanes = [lane for lane in board.lanes.values() if board.fits(lane, kind)]
        return min(lanes, key=lambda lane: lane.tasks, default=None)

    return greedy(board, queue, now_s, choose, "fewest tasks", "no server has the memory")


def random_policy(seed: int) -> Policy:
    """A policy that takes a random server with the memory; the same seed gives the same run."""
    rng = random.Random(seed)

    def step(
        state: LanState, queue: Sequence[Request], now_s: float, correction: Correction | None = None
    ) -> Decision:
        board = Board(state)

        def choose(request: Request) -> Lane | None:
            kind = board.types[request.type]
            lanes = [lane for lane in board.lanes.values() if board.fits(lane, kind)]
            return rng.choice(lanes) if lanes else None

        return greedy(board, queue, now_s, choose, "random", "no server has the memory")

    return step
