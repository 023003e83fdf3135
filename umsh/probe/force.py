"""What is in force on a device now, as a probe hands it on: its choice or defaults, and their subjects."""

from __future__ import annotations

import msgspec

from umsh.backends.driver import Device
from umsh.choice import Choice


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
    from umsh.correctness import force
    from umsh.explanation import explain
    from umsh.resolve import in_force

    subjects = force.force_of(device)
    facts = explain(None, f"{device.driver}:{device.index}").facts
    return Force(
        facts=facts, choice=in_force(device).choice,
        data=sorted(subjects.data), control=sorted(subjects.control),
    )  # fmt: skip
