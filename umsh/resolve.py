"""Resolve: which choice is in force on a device, and which mechanism or control method a need gets."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from umsh.choice import Choice, ControlRow, DataRow, load, own_path
from umsh.errors import (
    FallbackWarning,
    NeedError,
    RecordError,
    StaleChoiceWarning,
    UmshWarning,
    UnsupportedError,
)
from umsh.mechanism import Mechanism
from umsh.possible import missing, missing_control, safe_controls, safe_mechanisms

if TYPE_CHECKING:
    from umsh.backends.driver import Device
    from umsh.machine import Platform
    from umsh.need import Need

ENVIRONMENT = "UMSH_CHOICE"
SAFE_DEFAULT = "safe default"
SHIPPED = "shipped"
UNPROVEN = "not documented as coherent, and not proven by a probe of this machine"


@dataclass(frozen=True)
class InForce:
    """The choice a device uses. origin: "argument", "UMSH_CHOICE", "own probe", "shipped" or "safe default".

    trusted: made on this machine, or given by the user: it may rank undocumented memory.
    notes: sources that were passed over, and why.
    """

    origin: str
    path: str
    choice: Choice | None
    platform: Platform | None
    platform_evidence: str
    trusted: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resolved:
    """Why a need got its mechanism. candidates: in order of preference, the first is in force."""

    in_force: InForce
    origin: str
    candidates: tuple[Mechanism, ...]
    row: DataRow | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResolvedControl:
    """Why a flag or lock got its memory kind and method."""

    in_force: InForce
    origin: str
    memory: str
    method: str
    row: ControlRow | None = None
    notes: tuple[str, ...] = field(default=())


def in_force(device: Device, argument: str | os.PathLike[str] | None = None) -> InForce:
    """The choice `device` uses: argument, UMSH_CHOICE, own probe, shipped, else none (safe defaults).

    Raises RecordError for an argument or UMSH_CHOICE that cannot be used; other sources are passed
    over with a warning. Read once per process, device and source.
    """
    try:
        given = "" if argument is None else os.fsdecode(argument)
    except TypeError as error:
        raise NeedError(f"choice={argument!r} is no path.", "Nothing was bound.", "Give a path.") from error
    return _in_force(device, given, os.environ.get(ENVIRONMENT, ""))


@lru_cache(maxsize=64)
def _in_force(device: Device, argument: str, environment: str) -> InForce:
    from umsh.backends import facts_of, platform_of

    found = platform_of(device)
    facts = facts_of(device)
    platform, evidence = found if found else (None, "no platform file knows this device")
    for origin, path in (("argument", argument), (ENVIRONMENT, environment)):
        if path:
            choice = load(Path(path))
            _check(Path(path), choice, device, platform)
            _warn_if_stale(Path(path), choice, facts)
            return InForce(
                origin, path, choice, platform, evidence, trusted=choice.provenance == device.provenance
            )
    notes: list[str] = []
    for origin, place in (
        ("own probe", own_path(device)),
        *((SHIPPED, p) for p in _shipped(device, platform)),
    ):
        if not place.exists():
            continue
        try:
            choice = load(place)
            if origin == SHIPPED and choice.driver != device.driver:
                continue  # for the platform as another driver reaches it: a model's is none's default
            _check(place, choice, device, platform)
        except RecordError as error:
            notes.append(f"{origin}: {error}")
            warnings.warn(UmshWarning(f"{error} The next source is used."), stacklevel=2)
            continue
        own = origin != SHIPPED
        if own:
            _warn_if_stale(place, choice, facts)
        elif choice.driver_version and not _same_range(
            choice.driver_version, str(facts.get("driver_version", ""))
        ):
            notes.append(f"{origin}: {place.name} is for driver {choice.driver_version}")
            continue
        trusted = own and choice.provenance == device.provenance
        return InForce(origin, str(place), choice, platform, evidence, trusted=trusted, notes=tuple(notes))
    return InForce(SAFE_DEFAULT, "", None, platform, evidence, trusted=False, notes=tuple(notes))


def forget() -> None:
    """Read choice files again at the next bind: after a probe in this process."""
    _in_force.cache_clear()


def resolve_data(
    device: Device, need: Need, argument: str | os.PathLike[str] | None = None, forced: str = "auto"
) -> Resolved:
    """The mechanisms that may meet `need`, best first; never empty.

    Raises UnsupportedError naming the missing fact for a forced one, or when nothing is safe.
    """
    force = in_force(device, argument)
    if forced != "auto":
        mechanism = Mechanism.parse(forced)
        if fact := missing(device, mechanism, need):
            raise UnsupportedError(
                f"mechanism={forced!r} cannot be used here: {fact}.",
                "Nothing was bound.",
                "Use mechanism='auto', or see umsh.explain() for what is in force.",
            )
        return Resolved(force, "forced", (mechanism,))
    row = pick(force.choice.data, need) if force.choice else None
    safe = safe_mechanisms(device, need, force.platform)
    ranked: list[Mechanism] = []
    notes: list[str] = []
    for name in _names(force.choice, row, need):
        mechanism = Mechanism.parse(name)
        fact = missing(device, mechanism, need)
        if not fact and not force.trusted and mechanism.sharing not in {s.sharing for s in safe}:
            fact = UNPROVEN
        if fact:
            notes.append(f"{name} passed over: {fact}")
        else:
            ranked.append(mechanism)
    candidates = tuple(dict.fromkeys((*ranked, *safe)))
    if not candidates:
        raise _nothing(device, need)
    # A shipped choice is another machine's: that a row of it is not proven here is a note, no surprise.
    if row is not None and candidates[0].name != row.mechanism and force.origin != SHIPPED:
        warn_once(FallbackWarning(f"{notes[0]}. {candidates[0]} is used instead."))
    origin = force.origin if candidates[0] in ranked else SAFE_DEFAULT
    return Resolved(force, origin, candidates, row, tuple(notes))


def resolve_control(
    device: Device, pattern: str, threads: int, argument: str | os.PathLike[str] | None = None
) -> ResolvedControl:
    """Memory kind and method of a flag ("wait") or lock for that many GPU threads.

    Raises UnsupportedError when the device has no memory whose atomics hold while a kernel runs.
    """
    force = in_force(device, argument)
    rows = force.choice.control if force.choice else []
    notes: list[str] = []
    safe = safe_controls(device, pattern, force.platform, threads)
    for row in rows:
        if row.pattern != pattern or not row.min_threads <= threads <= (row.max_threads or threads):
            continue
        fact = missing_control(device, pattern, row.memory, row.method, threads)
        if not fact and not force.trusted and (row.memory, row.method) not in safe:
            fact = UNPROVEN
        if not fact:
            return ResolvedControl(force, force.origin, row.memory, row.method, row, tuple(notes))
        notes.append(f"{row.method} on {row.memory} passed over: {fact}")
    if not safe:
        kinds = ", ".join(kind.name for kind in device.memory_kinds() if kind.inside and not kind.absent)
        raise UnsupportedError(
            f"No {pattern!r} method for {threads} GPU threads is guaranteed on {device.name} "
            f"(memory whose atomics hold while a kernel runs: {kinds or 'none'}).",
            "No flag or lock was made.",
            "Ask for fewer threads, or run umsh-probe: memory that is not guaranteed may still be proven.",
        )
    memory, method = safe[0]
    if notes and force.origin != SHIPPED:
        warn_once(FallbackWarning(f"{notes[0]}. {method} on {memory} is used instead."))
    return ResolvedControl(force, SAFE_DEFAULT, memory, method, None, tuple(notes))


def pick(rows: list[DataRow], need: Need) -> DataRow | None:
    """The row for `need`: same direction, source and boundary, size in range, the largest min_passes met."""
    fits = [
        row
        for row in rows
        if (row.direction, row.source, row.boundary) == (need.direction, need.source, need.boundary)
        and row.min_bytes <= need.nbytes <= (row.max_bytes or need.nbytes)
        and row.min_passes <= need.passes
    ]
    return max(fits, key=lambda row: row.min_passes, default=None)


def _names(choice: Choice | None, row: DataRow | None, need: Need) -> list[str]:
    """Mechanisms the choice ranks for `need`: the row's, its runner-up, then those of its other rows."""
    if choice is None or row is None:
        return []
    others = [
        other.mechanism
        for other in choice.data
        if (other.direction, other.boundary) == (need.direction, need.boundary)
    ]
    return list(dict.fromkeys(name for name in (row.mechanism, row.next, *others) if name))


def _check(path: Path, choice: Choice, device: Device, platform: Platform | None) -> None:
    here = platform.name if platform else "unknown"
    if (choice.platform, choice.driver) != (here, device.driver):
        raise RecordError(
            f"The choice {path} is for platform {choice.platform} through {choice.driver}; "
            f"this is {here} through {device.driver}.",
            "It was not used.",
            "Run umsh-probe on this machine.",
        )


def _warn_if_stale(path: Path, choice: Choice, facts: object) -> None:
    now = dict(facts)  # type: ignore[call-overload]
    for what, then in (("driver_version", choice.driver_version), ("kernel", choice.kernel)):
        if then and now.get(what, then) != then:
            warn_once(
                StaleChoiceWarning(
                    f"The choice {path} was measured under {what} {then!r}; this machine runs {now[what]!r}. "
                    "It stays in use; run `umsh-probe` to measure again."
                )
            )


_warned: set[str] = set()


def warn_once(warning: UmshWarning) -> None:
    """Give a warning unless this process has given the same text before."""
    if str(warning) not in _warned:
        _warned.add(str(warning))
        warnings.warn(warning, stacklevel=3)


def _shipped(device: Device, platform: Platform | None) -> list[Path]:
    """Shipped choices of this platform; the papers' own recommendations are never loaded."""
    from umsh import backends

    if platform is None:
        return []
    folder = Path(backends.__path__[0]) / "choices"
    found = sorted(folder.glob(f"{platform.name}*.toml"))
    return [path for path in found if not path.name.endswith(".paper.toml")]


def _same_range(one: str, other: str) -> bool:
    """Whether two drivers have the same major version, such as 7 of "OpenCL 3.0 PoCL 7.1"."""
    return _major(one) == _major(other)


def _major(version: str) -> str:
    own = re.sub(r"^OpenCL \d+\.\d+ ", "", version)
    number = re.search(r"\d+", own)
    return number[0] if number else ""


def _nothing(device: Device, need: Need) -> UnsupportedError:
    kinds = "; ".join(
        f"{kind.name}: {kind.absent or 'not documented for this'}" for kind in device.memory_kinds()
    )
    return UnsupportedError(
        f"No memory of {device.name} is guaranteed for boundary={need.boundary!r} ({kinds}).",
        "Nothing was bound.",
        "Run umsh-probe: memory that is not guaranteed may still be proven.",
    )
