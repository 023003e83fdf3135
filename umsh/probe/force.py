"""What is in force on a device now: the choice in use, or the safe defaults, and the subjects behind it."""

from __future__ import annotations

from typing import Any

import msgspec

from umsh.backends.driver import Device
from umsh.choice import Choice
from umsh.mechanism import Mechanism
from umsh.need import BOUNDARIES, Need
from umsh.possible import safe_controls, safe_mechanisms
from umsh.probe.evidence import directions_of
from umsh.resolve import in_force


class Force(msgspec.Struct, frozen=True, kw_only=True):
    """facts: lines of text, as umsh.explain gives them. choice: the one in use, None where defaults stand.

    data: (sharing, direction, boundary) and control: subjects, as litmus tests name them.
    """

    facts: list[tuple[str, str]]
    choice: Choice | None
    data: list[tuple[str, str, str]]
    control: list[str]


def force_of(device: Device) -> Force:
    """What umsh.bind, Flag and Lock would use on this device in a new process."""
    from umsh.explanation import explain

    now = in_force(device)
    data: dict[tuple[str, str, str], None] = {}
    control: dict[str, None] = {}
    for row in now.choice.data if now.choice else ():
        for way in directions_of(row.direction):
            data[Mechanism.parse(row.mechanism).sharing, way, row.boundary] = None
    for one in now.choice.control if now.choice else ():
        control[one.memory if one.pattern == "wait" else f"lock:{one.method}@{one.memory}"] = None
    if now.choice is None:
        _defaults(device, now.platform, data, control)
    facts = explain(None, f"{device.driver}:{device.index}").facts
    return Force(facts=facts, choice=now.choice, data=list(data), control=list(control))


def _defaults(
    device: Device, platform: Any, data: dict[tuple[str, str, str], None], control: dict[str, None]
) -> None:
    for boundary in BOUNDARIES:
        safe = safe_mechanisms(device, Need("both", "cpu", boundary, 1), platform)
        for way in directions_of("both") if safe else ():
            data[safe[0].sharing, way, boundary] = None
    for pattern in ("wait", "lock"):
        pairs = safe_controls(device, pattern, platform)
        if pairs:
            memory, method = pairs[0]
            control[memory if pattern == "wait" else f"lock:{method}@{memory}"] = None
