"""Control rows of a choice: memory and method of flags and locks, by the number of threads."""

from __future__ import annotations

from collections.abc import Sequence

from umsh.choice import ControlRow
from umsh.mechanism import LOCK_ALGORITHMS, THROTTLE_LEVELS
from umsh.probe.evidence import samples_by, simplest_first, standing
from umsh.probe.ranking import Pick, pick, ranges
from umsh.profile import Profile


def control_rows(profile: Profile) -> list[ControlRow]:
    """Rows of both patterns as far as kept and timed candidates exist."""
    return [*_wait_rows(profile), *_lock_rows(profile)]


def _wait_rows(profile: Profile) -> list[ControlRow]:
    """Memory by the flag round trip; throttle level by contention at each number of pollers."""
    memory = _flag_memory(profile)
    if memory is None:
        return []
    levels = samples_by(profile, "contention", "round", "threads")
    picks: dict[int, Pick] = {}
    before = ""
    for threads, samples in levels.items():
        order = [level for level in THROTTLE_LEVELS if level in samples]
        picks[threads] = pick(samples, order, before)
        before = picks[threads].name
    state = standing(profile.verdicts, memory.name)
    proof = f"{state.tests} tests kept, rate <= {state.bound:.1g}"
    return [
        ControlRow(
            pattern="wait", memory=memory.name, min_threads=part.first, max_threads=part.last,
            method=part.pick.name, next=part.pick.next, ratio=part.pick.ratio, p=part.pick.p,
            evidence=f"n {part.pick.n} at {_points(part.points)} pollers; memory by flag "
            f"against {memory.next or 'none'} {memory.ratio:.2f}; {proof}",
        )
        for part in ranges(picks, first=1, unlimited=False)
    ]  # fmt: skip


def _flag_memory(profile: Profile) -> Pick | None:
    """The memory kind for flags: the fastest kept one by the flag round trip, the simpler when equal."""
    order = [
        kind
        for kind in dict.fromkeys(m.memory for m in simplest_first(profile))
        if standing(profile.verdicts, kind).verdict == "kept"
    ]
    by_rounds = samples_by(profile, "flag", "round_trip", "rounds")
    samples = by_rounds[max(by_rounds)] if by_rounds else {}
    timed = [kind for kind in order if kind in samples]
    return pick(samples, timed) if timed else None


def _lock_rows(profile: Profile) -> list[ControlRow]:
    """Algorithm and memory by the lock benchmark with one CPU thread against each number of GPU threads."""
    kinds = list(dict.fromkeys(m.memory for m in simplest_first(profile)))
    order = [f"{algorithm}@{kind}" for algorithm in LOCK_ALGORITHMS for kind in kinds]
    kept = [name for name in order if standing(profile.verdicts, f"lock:{name}").verdict == "kept"]
    timed = samples_by(profile, "lock", "lock_unlock", "gpu_threads", cpu_threads=1)
    picks: dict[int, Pick] = {}
    before = ""
    for threads, samples in timed.items():
        names = [name for name in kept if name in samples]
        if threads > 0 and names:
            picks[threads] = pick(samples, names, before)
            before = picks[threads].name
    return [_lock_row(profile, part.first, part.last, part.points, part.pick)
            for part in ranges(picks, first=0, unlimited=False)]  # fmt: skip


def _lock_row(profile: Profile, first: int, last: int, points: Sequence[int], won: Pick) -> ControlRow:
    algorithm, _, memory = won.name.partition("@")
    state = standing(profile.verdicts, f"lock:{won.name}")
    return ControlRow(
        pattern="lock", memory=memory, min_threads=first, max_threads=last, method=algorithm,
        next=won.next, ratio=won.ratio, p=won.p,
        evidence=f"n {won.n} at {_points(points)} GPU threads and one CPU thread; "
        f"{state.tests} tests kept, rate <= {state.bound:.1g}",
    )  # fmt: skip


def _points(points: Sequence[int]) -> str:
    return str(points[0]) if len(points) == 1 else f"{points[0]}..{points[-1]}"
