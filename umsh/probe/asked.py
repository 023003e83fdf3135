"""What a probe asks a device before it tries anything: identity, facts, candidates and what can be run."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from umsh.backends import facts_of, platform_of
from umsh.backends.driver import Device
from umsh.choice import own_folder
from umsh.mechanism import MemoryKind
from umsh.profile import MechanismRecord, Scalar

IDENTITY = (
    "arch", "cpu", "cpus", "memory_bytes", "kernel", "driver_version", "device_type", "device_version",
)  # fmt: skip


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one device. litmus: (test, subject, direction) of each verdict to be had; benches:
    (benchmark, parameters) of each group to be measured. folder: where this device's own choice lives.
    kinds: every memory kind. methods: agent -> method -> "" or the missing fact.
    """

    umsh: str
    folder: str
    provenance: Literal["measured", "modelled"]
    platform: str
    driver: str
    device: str
    identity: dict[str, Scalar]
    facts: dict[str, Scalar]
    kinds: list[MemoryKind]
    methods: dict[str, dict[str, str]]
    mechanisms: list[MechanismRecord]
    litmus: list[tuple[str, str, str]]
    benches: list[tuple[str, dict[str, Scalar]]]


def ask(device: Device, quick: bool) -> Asked:
    """Ask an opened device; nothing is measured."""
    from importlib.metadata import version

    platform, facts = platform_of(device), dict(facts_of(device))
    identity = {name: facts[name] for name in IDENTITY if name in facts}
    if platform is not None:
        identity["platform_evidence"] = platform[1]
    return Asked(
        umsh=version("umsh"),
        folder=str(own_folder(device)),
        provenance="measured" if device.provenance == "measured" else "modelled",
        platform=platform[0].name if platform is not None else "unknown",
        driver=device.driver,
        device=device.name,
        identity=identity,
        facts=facts,
        kinds=list(device.memory_kinds()),
        methods={agent.kind: dict(agent.methods()) for agent in (device.cpu, device.gpu)},
        mechanisms=_mechanisms(device),
        litmus=_litmus(device),
        benches=_benches(device, quick),
    )


def _mechanisms(device: Device) -> list[MechanismRecord]:
    """Every candidate of either direction; absent only when absent in both."""
    from umsh.mechanism import Mechanism
    from umsh.microbench.subjects import mechanisms

    documented = {kind.name: kind.documented for kind in device.memory_kinds()}
    one, other = mechanisms(device, "cpu->gpu"), mechanisms(device, "gpu->cpu")
    return [
        MechanismRecord(name, missing and other[name], documented[Mechanism.parse(name).memory])
        for name, missing in one.items()
    ]


def _litmus(device: Device) -> list[tuple[str, str, str]]:
    """Every test of every subject in both directions, but for memory kinds that are absent altogether."""
    from umsh.correctness.litmus import tests
    from umsh.correctness.subjects import ONE_WAY, subjects

    absent = {kind.name for kind in device.memory_kinds() if kind.absent}
    return [
        (name, subject.name, direction)
        for name, test in tests().items()
        for direction in ONE_WAY
        for subject in subjects(device, test, direction)
        if subject.memory not in absent
    ]


def _benches(device: Device, quick: bool) -> list[tuple[str, dict[str, Any]]]:
    from umsh.microbench.catalogue import benchmarks

    return [
        (key, dict(parameters))
        for key, definition in benchmarks().items()
        for parameters in (definition.parameters(device, quick) if not definition.applies(device) else [{}])
    ]
