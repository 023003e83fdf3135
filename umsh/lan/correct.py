"""Online correction: occupancies and times of a profile, adjusted when reality disagrees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from umsh.lan.cluster import Cell
from umsh.lan.errors import check_number

Key = tuple[str, str]  # task type, GPU model

# A factor outside this range is a broken sensor or a wrong profile, not drift.
FACTOR_MIN, FACTOR_MAX = 0.5, 2.0
OCCUPANCY_STEP = 0.2
TIME_STEP = 0.3


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors on the profiled occupancy and inference time of (task type, GPU model); 1 where unknown."""

    occupancy: Mapping[Key, float] = field(default_factory=dict)
    time: Mapping[Key, float] = field(default_factory=dict)

    def cell(self, key: Key, cell: Cell) -> Cell:
        """The profiled cell with the factors applied; occupancy stays in [0, 1]."""
        u, t = self.occupancy.get(key, 1.0), self.time.get(key, 1.0)
        if u == t == 1.0:
            return cell
        return Cell(min(1.0, cell.compute * u), cell.infer_s * t, cell.mark)


def saw_utilisation(
    correction: Correction, utilisation: float, inferring: Iterable[tuple[Key, float]]
) -> Correction:
    """Normalised least-mean-squares step after a heartbeat.

    `inferring` holds (key, profiled occupancy) of the tasks in inference on that server. A saturated GPU
    shows 1 whatever the sum is, so a prediction above 1 against a reading of 1 teaches nothing.
    """
    check_number(utilisation, "utilisation", 0.0, 1.0)
    tasks = list(inferring)
    expected = [u * correction.occupancy.get(key, 1.0) for key, u in tasks]
    total = sum(expected)
    error = utilisation - min(1.0, total)
    if total <= 0.0 or error == 0.0:
        return correction
    factors = dict(correction.occupancy)
    step = OCCUPANCY_STEP * error / total
    for key, _ in tasks:
        factors[key] = _bounded(factors.get(key, 1.0) * (1.0 + step))
    return Correction(factors, correction.time)


def saw_inference(correction: Correction, key: Key, profiled_s: float, alone_s: float) -> Correction:
    """Exponential average of the time seen over the profiled one, after a task ended unhindered."""
    check_number(profiled_s, "profiled time")
    check_number(alone_s, "observed time")
    if profiled_s == 0.0:
        return correction
    old = correction.time.get(key, 1.0)
    factors = dict(correction.time)
    factors[key] = _bounded(old + TIME_STEP * (alone_s / profiled_s - old))
    return Correction(correction.occupancy, factors)


def _bounded(factor: float) -> float:
    return min(FACTOR_MAX, max(FACTOR_MIN, factor))
