"""Contention-aware latency predictor (Gleam section 5.1): pure functions of occupancies and times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from umsh.lan.errors import LanInputError, check_number

# Fitted by fit_gamma from paper table 4 (two llama-8B on one GPU: 13.76 s alone, 18.28 s together).
GAMMA_COMPUTE = 1.0544
# Paper table 3 fits below 1 (58.34 s for 59.76 s predicted), and equation 4 demands at least 1.
GAMMA_LINK = 1.0


def latency_factor(occupancy_sum: float, gamma: float = 1.0) -> float:
    """Equation 4: alpha = max(1, gamma * sum of occupancies), the slowdown of every task that shares."""
    return max(1.0, gamma * occupancy_sum)


def fit_gamma(observed: Iterable[tuple[float, float]]) -> float:
    """Least-squares gamma >= 1 from pairs (occupancy sum, measured slowdown); only saturated pairs tell.

    Raises LanInputError if no pair is saturated (sum above 1).
    """
    pairs = [(check_number(u, "occupancy sum"), check_number(a, "slowdown")) for u, a in observed]
    saturated = [(u, a) for u, a in pairs if u > 1.0]
    if not saturated:
        raise LanInputError(
            "no measurement has an occupancy sum above 1.",
            "The penalty factor cannot be fitted.",
            "Measure at least two tasks that saturate one GPU.",
        )
    return max(1.0, sum(u * a for u, a in saturated) / sum(u * u for u, _ in saturated))


def latencies_s(tasks: Sequence[tuple[float, float]], gamma: float = 1.0) -> list[float]:
    """Predicted seconds until each of the overlapping tasks ends, in the order given.

    Each task is (occupancy u, standalone seconds left r). With tasks sorted by r descending and r[n+1] = 0:
    L_k = sum over i >= k of alpha(u_1 + ... + u_i) * (r_i - r_{i+1}); L_1 is equation 5 as its worked
    example has it (the printed r_i - r_{i-1} is a misprint).
    """
    order = sorted(range(len(tasks)), key=[r for _, r in tasks].__getitem__)
    total = 0.0
    for u, _ in tasks:
        total += u
    result = [0.0] * len(tasks)
    elapsed = done = 0.0
    for i in order:
        u, r = tasks[i]
        factor = gamma * total
        elapsed += (factor if factor > 1.0 else 1.0) * (r - done)
        done = r
        total -= u
        result[i] = elapsed
    return result


def newcomer_s(
    residents: Sequence[tuple[float, float]], u: float, r: float, count: int = 1, gamma: float = 1.0
) -> float:
    """Predicted seconds of `count` equal newcomers (u, r) among residents; latencies_s without the rest."""
    total = count * u
    for v, _ in residents:
        total += v
    elapsed = done = 0.0
    for v, left in sorted(residents, key=lambda task: task[1]):
        if left >= r:
            break
        factor = gamma * total
        elapsed += (factor if factor > 1.0 else 1.0) * (left - done)
        done = left
        total -= v
    return elapsed + latency_factor(total, gamma) * (r - done)


def start_now_s(
    residents: Sequence[tuple[float, float]],
    u: float,
    r: float,
    gamma: float,
    ends_s: Sequence[float] | None = None,
) -> float:
    """Seconds that one more task (u, r) adds if it starts now: its own and the residents' delay.

    `ends_s` is latencies_s of the residents, if the caller has it already.
    """
    before = latencies_s(residents, gamma) if ends_s is None else ends_s
    return sum(latencies_s([*residents, (u, r)], gamma)) - sum(before)


def start_later_s(
    residents: Sequence[tuple[float, float]],
    u: float,
    r: float,
    gamma: float,
    crowd: float,
    waited_s: float = 0.0,
    ends_s: Sequence[float] | None = None,
) -> float:
    """The same if it starts when the first resident has ended, but not sooner than it waited so far:
    others take the place of those that end, so a wait that has lasted will last.

    Until then the resource idles in part if the residents do not saturate it; each of `crowd` tasks that
    wait behind loses that much.
    """
    first = max(waited_s, min(latencies_s(residents, gamma) if ends_s is None else ends_s))
    shortest = min([left for _, left in residents])
    rest = [(v, left - shortest) for v, left in residents if left > shortest]
    idle = max(0.0, 1.0 - gamma * sum([v for v, _ in residents]))
    return first + start_now_s(rest, u, r, gamma) + crowd * idle * first


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted time with its bounds, all in seconds."""

    value_s: float
    low_s: float
    high_s: float


def remaining_load_s(sent_bytes: float, total_bytes: float, load_s: float) -> float:
    """Standalone loading seconds left: (1 - Q_sent / Q_total) * L_load (section 5.1.2)."""
    return _left(sent_bytes, total_bytes, "bytes") * check_number(load_s, "standalone loading time")


def remaining_infer_s(syncs_done: float, syncs_total: float, infer_s: float) -> float:
    """Standalone inference seconds left: (1 - C_invoked / C_total) * L_infer (section 5.1.2)."""
    return _left(syncs_done, syncs_total, "synchronise calls") * check_number(
        infer_s, "standalone inference time"
    )


def infer_estimate(syncs_done: float, syncs_total: float, infer_s: float, jitter: float = 0.0) -> Estimate:
    """Remaining inference with its error: one synchronise call plus `jitter`, the profile's greatest
    distance of the call pattern from a straight line, as a share of the whole (figure 14)."""
    value = remaining_infer_s(syncs_done, syncs_total, infer_s)
    error = infer_s * (1.0 / syncs_total + check_number(jitter, "jitter", 0.0, 1.0))
    return Estimate(value, max(0.0, value - error), min(infer_s, value + error))


def _left(done: float, total: float, what: str) -> float:
    if not (0.0 <= done < math.inf and 0.0 < total < math.inf):
        check_number(done, f"{what} done")
        check_number(total, f"total {what}")
        raise LanInputError(f"the total of {what} is 0.", "Progress is undefined.", "Profile the type again.")
    return 1.0 - done / total if done < total else 0.0
