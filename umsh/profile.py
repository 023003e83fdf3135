"""Profile: what a probe measured on one machine, as evidence that a choice is generated from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from umsh.records import check_format, read_bytes, unreadable, write_atomic

FORMAT = 1
Scalar = str | int | float | bool


class MechanismRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mechanism considered: `absent` is the missing fact or "", `documented` the vendor's guarantee."""

    name: str
    absent: str
    documented: bool


class VerdictRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One litmus result.

    subject: Mechanism.sharing, a memory kind, or "lock:<algorithm>@<memory kind>".
    bound: with 0 forbidden in n runs, 3 / n bounds the rate (rule of three).
    mutants: mutant -> "caught" or why it was not.
    """

    test: str
    test_hash: str
    subject: str
    direction: str
    boundary: str
    verdict: Literal["kept", "broken", "unproven", "absent"]
    reason: str
    n: int
    forbidden: int
    bound: float
    outcomes: dict[str, int]
    ordinary_missing: list[str]
    mutants: dict[str, str]
    seed: int
    settings: dict[str, Scalar]


class SampleRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Raw samples of one benchmark for one subject and one set of parameters, in `unit`.

    baseline_of: the comparison this sample is the baseline of, else "".
    verified: the data were checked in every timed run. note: a limit met, a waived row.
    """

    bench: str
    subject: str
    baseline_of: str
    direction: str
    parameters: dict[str, Scalar]
    unit: Literal["ns", "B/s", "B", "count"]
    samples: list[float]
    verified: bool
    note: str


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything one probe found out. made: ISO 8601 UTC. noise: benchmark -> relative spread."""

    format: int = FORMAT
    umsh: str
    made: str
    provenance: Literal["measured", "modelled"]
    platform: str
    driver: str
    device: str
    quick: bool
    seed: int
    identity: dict[str, Scalar]
    facts: dict[str, Scalar]
    mechanisms: list[MechanismRecord]
    verdicts: list[VerdictRecord]
    samples: list[SampleRecord]
    noise: dict[str, float]


def encode(profile: Profile) -> bytes:
    """The profile as JSON text, indented, keys of dicts sorted: byte-stable for equal content."""
    return msgspec.json.format(msgspec.json.encode(profile, order="deterministic"), indent=1) + b"\n"


def save(profile: Profile, path: Path) -> None:
    """Write the profile atomically; RecordError when the place cannot take it."""
    write_atomic(path, encode(profile))


def load(path: Path) -> Profile:
    """The profile in `path`; RecordError when unreadable, truncated, foreign or of a future format."""
    data = read_bytes(path, "profile")
    try:
        raw = msgspec.json.decode(data)
        check_format(path, "profile", raw.get("format") if isinstance(raw, dict) else None, FORMAT)
        return msgspec.convert(raw, Profile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable(path, "profile", str(error)) from error
