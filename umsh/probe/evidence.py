"""What a profile proves: which subjects are kept, and the raw samples of a benchmark by its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from umsh.mechanism import PAGES, READ_METHODS, WRITE_METHODS, Mechanism
from umsh.probe import stats
from umsh.profile import Profile, SampleRecord, VerdictRecord

BOTH_WAYS = ("cpu->gpu", "gpu->cpu")


@dataclass(frozen=True, slots=True)
class Standing:
    """The litmus results of one subject, put together.

    verdict: "kept" when no test broke or lacked evidence and at least one was kept; else the worst.
    complete: no test was absent. bound: the largest 3/n of its tests. reason: of the test that decided.
    tests / runs: how many results and instances stand behind it.
    """

    verdict: str
    reason: str
    complete: bool
    tests: int
    runs: int
    bound: float


def standing(
    verdicts: Iterable[VerdictRecord], subject: str, boundary: str = "", directions: Sequence[str] = BOTH_WAYS
) -> Standing:
    """The standing of a subject; "unproven" when no test names it. boundary "" takes both."""
    mine = [
        v for v in verdicts
        if v.subject == subject and boundary in ("", v.boundary) and v.direction in directions
    ]  # fmt: skip
    ran = [v for v in mine if v.verdict != "absent"]
    runs, complete = sum(v.n for v in ran), len(ran) == len(mine)
    for v in sorted(ran, key=lambda one: one.verdict != "broken"):
        if v.verdict != "kept":
            return Standing(v.verdict, f"{v.test}: {v.reason}", complete, len(ran), runs, v.bound)
    if ran:
        return Standing("kept", "", complete, len(ran), runs, max(v.bound for v in ran))
    if mine:
        return Standing("absent", mine[0].reason, False, 0, 0, 1.0)
    return Standing("unproven", "no litmus test ran", False, 0, 0, 1.0)


def directions_of(direction: str) -> tuple[str, ...]:
    """The one-way directions a need is made of."""
    return BOTH_WAYS if direction == "both" else (direction,)


def kept_mechanisms(profile: Profile, direction: str, boundary: str = "") -> list[Mechanism]:
    """Mechanisms kept in each way the need has, simplest first.

    A test that needs an absent method proves nothing about a one-way need, where that method is never
    used; under "both" either agent may use it, so nothing may be absent.
    """
    found = []
    for mechanism in simplest_first(profile):
        ways = directions_of(direction)
        state = [standing(profile.verdicts, mechanism.sharing, boundary, (way,)) for way in ways]
        if all(s.verdict == "kept" and (s.complete or len(ways) == 1) for s in state):
            found.append(mechanism)
    return found


def simplest_first(profile: Profile) -> list[Mechanism]:
    """Present mechanisms by simplicity: one memory before two, then fewer actions of the methods, then what
    the vendor documents, then the driver's own order of kinds, then smaller pages."""
    present = [(Mechanism.parse(r.name), r.documented) for r in profile.mechanisms if not r.absent]
    kinds = list(dict.fromkeys(m.memory for m, _ in present))

    def effort(entry: tuple[Mechanism, bool]) -> tuple[bool, int, bool, int, int]:
        mechanism, documented = entry
        actions = WRITE_METHODS.index(mechanism.write) + READ_METHODS.index(mechanism.read)
        place, pages = kinds.index(mechanism.memory), PAGES.index(mechanism.pages)
        return mechanism.write == "copy", actions, not documented, place, pages

    return [mechanism for mechanism, _ in sorted(present, key=effort)]


def usable(record: SampleRecord) -> bool:
    """Whether a record holds verified samples of a candidate: not waived, not a twin, not a baseline's."""
    return bool(record.samples) and record.verified and not record.parameters.get("twin")


def samples_by(
    profile: Profile, bench: str, metric: str, key: str, **fixed: object
) -> dict[int, dict[str, list[float]]]:
    """parameters[key] -> subject -> raw samples of one metric, ascending; the fixed parameters must match."""
    found: dict[int, dict[str, list[float]]] = {}
    for record in profile.samples:
        wanted = {**fixed, "metric": metric}
        if record.bench != bench or not usable(record) or key not in record.parameters:
            continue
        if all(record.parameters.get(name) == value for name, value in wanted.items()):
            found.setdefault(int(record.parameters[key]), {})[record.subject] = record.samples
    return dict(sorted(found.items()))


def noise_of(samples: Sequence[SampleRecord]) -> dict[str, float]:
    """How noisy the machine was: groups with twins, twins that differ, typical relative spread, by benchmark.

    twins: groups in which one candidate was measured twice. twins_differ: how many of those pairs the
    ranking's own test tells apart. spread: median over all records of interquartile range / median;
    spread:<bench>: the same within one benchmark.
    """
    real = {identity(r): r.samples for r in samples if usable(r)}
    pairs = [(r.samples, real.get(identity(r))) for r in samples if r.verified and r.parameters.get("twin")]
    told = [(a, b) for a, b in pairs if b]
    noise = {
        "twins": float(len(told)),
        "twins_differ": float(sum(stats.beats(a, b) or stats.beats(b, a) for a, b in told)),
    }
    spreads: dict[str, list[float]] = {}
    for record in samples:
        if usable(record) and record.unit == "ns":
            spreads.setdefault(record.bench, []).append(stats.summarise(record.samples).spread)
    if spreads:
        noise["spread"] = round(stats.median([s for group in spreads.values() for s in group]), 4)
        noise |= {f"spread:{bench}": round(stats.median(group), 4) for bench, group in spreads.items()}
    return noise


def identity(record: SampleRecord) -> tuple[str, str, str]:
    """What a record measures, twins and originals alike."""
    parameters = {k: v for k, v in record.parameters.items() if k != "twin"}
    return record.bench, record.subject, str(sorted(parameters.items()))
