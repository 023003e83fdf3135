"""What every policy does first: check the clock, refuse what can never run, group the rest by type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from umsh.lan.board import Board
from umsh.lan.cluster import Decision, LanState, Request
from umsh.lan.correct import Correction
from umsh.lan.errors import LanInputError, check_number

Policy: TypeAlias = Callable[[LanState, Sequence[Request], float, Correction], Decision]

QUEUE_MAX = 100_000
WAIT_S_MAX = 3600.0
NO_SERVER = "no server is present"


def screen(
    board: Board, queue: Sequence[Request], now_s: float
) -> tuple[dict[str, list[Request]], list[tuple[Request, str]]]:
    """Split the queue into pending requests by type (first come first) and refusals with their reason.

    Refused: a type that was never profiled, a task larger than every GPU, present or away, and a request that
    waited longer than WAIT_S_MAX. Raises LanInputError for a clock that went back, a request queued
    twice, or a queue above QUEUE_MAX.
    """
    check_number(now_s, "the time of the step")
    if len(queue) > QUEUE_MAX:
        raise LanInputError(
            f"{len(queue)} requests wait.",
            "The step was not taken.",
            f"The bound is {QUEUE_MAX}; refuse earlier.",
        )
    pending: dict[str, list[Request]] = {}
    refused: list[tuple[Request, str]] = []
    seen: set[int] = set()
    for request in sorted(queue, key=lambda request: (request.submit_s, request.id)):
        if request.submit_s > now_s:
            raise LanInputError(
                f"request {request.id} was submitted at {request.submit_s:g} s, after now ({now_s:g} s).",
                "The step was not taken.",
                "The clock went back; use a monotonic one.",
            )
        if request.id in seen:
            raise LanInputError(
                f"request {request.id} is queued twice.", "The step was not taken.", "Queue it once."
            )
        seen.add(request.id)
        if request.type not in board.types:
            refused.append((request, f"task type {request.type!r} was never profiled"))
        elif now_s - request.submit_s > WAIT_S_MAX:
            refused.append((request, f"waited longer than {WAIT_S_MAX:g} s"))
        else:
            pending.setdefault(request.type, []).append(request)
    if board.lanes:
        for name in [name for name in pending if not board.could_ever_fit(board.types[name])]:
            kind = board.types[name]
            largest = max(lane.server.memory_mb for lane in board.lanes.values())
            reason = (
                f"needs {kind.memory_mb:.0f} MiB and a profiled GPU; the largest server has {largest:.0f} MiB"
            )
            refused += [(request, reason) for request in pending.pop(name)]
    return pending, refused


def by_memory(board: Board, pending: dict[str, list[Request]]) -> list[str]:
    """Types in descending order of GPU memory, as both phases of Algorithm 1 take them."""
    return sorted(pending, key=lambda name: (-board.types[name].memory_mb, name))


def first_come(pending: dict[str, list[Request]]) -> list[Request]:
    """All pending requests in order of submission."""
    every = [request for requests in pending.values() for request in requests]
    return sorted(every, key=lambda request: (request.submit_s, request.id))
