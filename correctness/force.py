"""Which litmus subjects are in force on a device: behind the choice in use, or behind the safe defaults."""

from __future__ import annotations

from dataclasses import dataclass

from umsh.backends.driver import Device
from umsh.correctness.language import Litmus
from umsh.correctness.subjects import ONE_WAY
from umsh.mechanism import Mechanism
from umsh.need import BOUNDARIES, Need
from umsh.possible import safe_controls, safe_mechanisms
from umsh.resolve import InForce, in_force


@dataclass(frozen=True, slots=True)
class Force:
    """data: (sharing, direction, boundary) triples. control: memory kinds and "lock:algorithm@kind" names."""

    data: frozenset[tuple[str, str, str]]
    control: frozenset[str]

    def holds(self, test: Litmus, subject: str, direction: str) -> bool:
        """Whether the library rests on this subject keeping this test."""
        if test.about == "data":
            return (subject, direction, test.boundary) in self.data
        return subject in self.control


def force_of(device: Device) -> Force:
    """What umsh.bind, Flag and Lock use on this device now."""
    now = in_force(device)
    return _defaults(device, now) if now.choice is None else _chosen(now)


def _chosen(now: InForce) -> Force:
    choice = now.choice
    assert choice is not None
    data = {
        (Mechanism.parse(row.mechanism).sharing, way, row.boundary)
        for row in choice.data
        for way in (ONE_WAY if row.direction == "both" else (row.direction,))
    }
    return Force(
        frozenset(data), frozenset(_control(one.pattern, one.memory, one.method) for one in choice.control)
    )


def _defaults(device: Device, now: InForce) -> Force:
    data, control = set(), set()
    for boundary in BOUNDARIES:
        for mechanism in safe_mechanisms(device, Need("both", "cpu", boundary, 1), now.platform)[:1]:
            data |= {(mechanism.sharing, way, boundary) for way in ONE_WAY}
    for pattern in ("wait", "lock"):
        for memory, method in safe_controls(device, pattern, now.platform)[:1]:
            control.add(_control(pattern, memory, method))
    return Force(frozenset(data), frozenset(control))


def _control(pattern: str, memory: str, method: str) -> str:
    return memory if pattern == "wait" else f"lock:{method}@{memory}"
