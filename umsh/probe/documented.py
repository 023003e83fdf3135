"""Choices for machines nobody of us has measured: what the vendor documents as coherent, untimed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from umsh.backends import platforms
from umsh.choice import Choice, ControlRow, DataRow
from umsh.machine import Platform
from umsh.need import Boundary
from umsh.probe.rank_data import NEEDS

BOUNDARIES: tuple[Boundary, ...] = ("kernel", "inside")
Pattern = Literal["wait", "lock"]
PATTERNS: tuple[Pattern, ...] = ("wait", "lock")


def documented(platform: Platform, source: bytes) -> Choice:
    """Every need's row, in the platform file's order of preference; reachable without patches.

    source: the platform file's bytes. Anything faster needs a probe of the machine itself.
    """
    evidence = f"documented, not measured: backends/{platform.name}.py"
    return Choice(
        platform=platform.name,
        driver=platform.driver,
        driver_version="",
        kernel="",
        device="",
        provenance="documented",
        profile=f"backends/{platform.name}.py",
        profile_sha256=hashlib.sha256(source).hexdigest(),
        data=[row for boundary in BOUNDARIES for row in _data(platform, boundary, evidence)],
        control=[_control(platform, pattern, evidence) for pattern in PATTERNS],
    )


def _data(platform: Platform, boundary: Boundary, evidence: str) -> list[DataRow]:
    names = platform.safe_mechanisms
    if boundary == "inside":  # a copy is a hand-over between kernels
        names = platform.safe_inside or tuple(n for n in names if not n.endswith(":copy/copy"))
    return [
        DataRow(
            direction=direction, source=source, boundary=boundary, min_bytes=1, max_bytes=0,
            mechanism=names[0], next=names[1] if len(names) > 1 else "", ratio=1.0, p=1.0, evidence=evidence,
        )
        for direction, sources in NEEDS
        for source in sources
    ]  # fmt: skip


def _control(platform: Platform, pattern: Pattern, evidence: str) -> ControlRow:
    return ControlRow(
        pattern=pattern, memory=platform.safe_memory[0], min_threads=1, max_threads=0,
        method=platform.safe_wait if pattern == "wait" else platform.safe_lock,
        next="", ratio=1.0, p=1.0, evidence=evidence,
    )  # fmt: skip


def shipped(root: Path) -> dict[str, Choice]:
    """Platform -> choice, from the platform files that a checkout has."""
    files = {p: root / "backends" / f"{p.name}.py" for p in platforms() if p.ships_choice}
    return {p.name: documented(p, file.read_bytes()) for p, file in files.items() if file.is_file()}
