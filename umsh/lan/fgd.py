"""Fragmentation Gradient Descent (Weng et al., ATC'23), exact, mapped onto a LAN of one-GPU servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umsh.lan.baselines import greedy
from umsh.lan.board import Board, Lane
from umsh.lan.cluster import Decision, LanState, Request
from umsh.lan.correct import Correction
from umsh.lan.errors import check_number
from umsh.lan.memory import need_mb

MILLI = 1000.0


@dataclass(frozen=True, slots=True)
class Demand:
    """A typical task and its popularity: `gpu_milli` of each of `gpus` GPUs, `cpu` of a second resource."""

    popularity: float
    cpu: float
    gpus: int
    gpu_milli: float
    gpu_type: str = ""

    def __post_init__(self) -> None:
        check_number(self.popularity, "popularity", 0.0, 1.0)
        check_number(self.cpu, "cpu demand")
        check_number(self.gpu_milli, "gpu demand in milli", 0.0, MILLI)


def fragmentation(
    cpu_free: float, milli_free: Sequence[float], workload: Sequence[Demand], gpu_type: str = ""
) -> float:
    """F_n(M) = sum of p_m * F_n(m) in milli-GPU (ATC'23 section 3).

    F_n(m) is all free milli-GPU if the node cannot host m (cpu, number of GPUs, type, or no GPU asked);
    otherwise what is free on GPUs with less left than m asks of one.
    """
    total = sum(milli_free)
    result = 0.0
    for m in workload:
        fitting = sum(1 for milli in milli_free if milli >= m.gpu_milli)
        hosted = m.gpus > 0 and cpu_free >= m.cpu and fitting >= m.gpus and m.gpu_type in ("", gpu_type)
        lost = sum(milli for milli in milli_free if milli < m.gpu_milli) if hosted else total
        result += m.popularity * lost
    return result


def step(
    state: LanState,
    queue: Sequence[Request],
    now_s: float,
    correction: Correction | None = None,
    mix: Mapping[str, float] | None = None,
    prefer_cache: bool = False,
) -> Decision:
    """Place each request where the fragmentation grows least; ties by server order.

    Each server is a node with one GPU of 1000 milli * (1 - allocated occupancy) and its memory as the
    second resource. `mix` is the popularity of the task types, uniform if not given. FGD gets remoting and
    the weight cache like every policy, but no link term; `prefer_cache` (not in FGD) lets it choose among
    the feasible servers that hold the weights first.
    """
    board = Board(state)
    share = mix or {name: 1.0 / len(board.types) for name in board.types}

    def choose(request: Request, lanes: Sequence[Lane]) -> Lane | None:
        best, least = None, 0.0
        for lane in lanes:
            growth = _growth(board, lane, request.type, share)
            if growth is not None and (best is None or growth < least):
                best, least = lane, growth
        return best

    return greedy(
        board,
        queue,
        now_s,
        choose,
        "least growth of fragmentation",
        "no server has the GPU share and memory",
        prefer_cache,
    )


def _growth(board: Board, lane: Lane, name: str, share: Mapping[str, float]) -> float | None:
    kind, cell = board.types[name], board.cell(lane, name)
    if cell is None or board.room(lane, kind, 1) == 0:
        return None
    free = MILLI * (1.0 - lane.allocated)
    if free + 1e-6 < MILLI * cell.compute:
        return None
    before = fragmentation(lane.free_mb, [max(0.0, free)], _workload(board, lane, share, ""))
    rest = max(0.0, free - MILLI * cell.compute)
    taken = need_mb(kind, name in lane.counts)
    after = fragmentation(lane.free_mb - taken, [rest], _workload(board, lane, share, name))
    return after - before


def _workload(board: Board, lane: Lane, share: Mapping[str, float], added: str) -> list[Demand]:
    """The type mix as this node sees it; a type that its GPU cannot run asks for no GPU, so is lost here."""
    demands = []
    for name, popularity in share.items():
        kind, cell = board.types[name], board.cell(lane, name)
        need = need_mb(kind, name in lane.counts or name == added)
        if cell is None:
            demands.append(Demand(popularity, need, 0, 0.0))
        else:
            demands.append(Demand(popularity, need, 1, MILLI * cell.compute))
    return demands
