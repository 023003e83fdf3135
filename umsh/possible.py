"""Possible: what a device can do for a need, and what of that is safe before any probe has run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umsh.mechanism import Mechanism, MemoryKind

if TYPE_CHECKING:
    from umsh.backends.driver import Agent, Device
    from umsh.machine import Platform
    from umsh.need import Need

COPY = "copy"


def missing(device: Device, mechanism: Mechanism, need: Need) -> str:
    """The fact this device lacks for `mechanism` to meet `need`; "" when it can."""
    kinds = {kind.name: kind for kind in device.memory_kinds()}
    kind = kinds.get(mechanism.memory)
    if kind is None:
        return f"driver {device.driver!r} has no memory kind {mechanism.memory!r}, only {', '.join(kinds)}"
    if kind.absent:
        return f"{kind.name!r} memory is absent: {kind.absent}"
    if mechanism.pages not in kind.pages:
        return f"{kind.name!r} memory has no {mechanism.pages!r} pages, only {', '.join(kind.pages)}"
    copies = {mechanism.write == COPY, mechanism.read == COPY, kind.name == COPY}
    if len(copies) > 1:
        return "'copy' is a memory kind, a write method and a read method that only go together"
    if kind.name == COPY:
        return "two memories cannot be kept equal while a kernel runs" if need.boundary == "inside" else ""
    return _missing_methods(device, mechanism, need)


def safe_mechanisms(device: Device, need: Need, platform: Platform | None) -> tuple[Mechanism, ...]:
    """Mechanisms the vendor guarantees for `need` here, preferred first (contract, Safe defaults)."""
    if platform is not None:
        inside = platform.safe_inside if need.boundary == "inside" else ()
        named = [Mechanism.parse(name) for name in inside or platform.safe_mechanisms]
    else:
        named = [_plain(kind) for kind in device.memory_kinds()]
    guaranteed = {kind.name for kind in device.memory_kinds() if _guaranteed(kind, need.boundary)}
    return tuple(m for m in named if m.memory in guaranteed and not missing(device, m, need))


def safe_controls(device: Device, pattern: str, platform: Platform | None) -> tuple[tuple[str, str], ...]:
    """(memory kind, method) pairs the vendor guarantees for flags ("wait") or locks here."""
    kinds = {kind.name for kind in device.memory_kinds() if _guaranteed(kind, "inside")}
    if platform is None:
        return tuple((name, _plain_control(device, pattern)) for name in sorted(kinds))
    method = platform.safe_wait if pattern == "wait" else platform.safe_lock
    return tuple((name, method) for name in platform.safe_memory if name in kinds)


def _guaranteed(kind: MemoryKind, boundary: str) -> bool:
    return not kind.absent and (kind.inside if boundary == "inside" else kind.documented)


def _plain(kind: MemoryKind) -> Mechanism:
    """The mechanism that is right for memory of this coherence, nothing else being known."""
    if kind.name == COPY:
        return Mechanism(kind.name, kind.pages[0], COPY, COPY)
    write, read = ("WA", "RA") if kind.coherence == "two-way" else ("WF", "RI")
    return Mechanism(kind.name, kind.pages[0], write, read)


def _plain_control(device: Device, pattern: str) -> str:
    if pattern == "wait":
        return "thread"
    return next((name for name, fact in device.lock_algorithms().items() if not fact), "peterson")


def _missing_methods(device: Device, mechanism: Mechanism, need: Need) -> str:
    cpu, gpu = ("CPU", device.cpu), ("GPU", device.gpu)
    writers, readers = {"cpu->gpu": ([cpu], [gpu]), "gpu->cpu": ([gpu], [cpu])}.get(
        need.direction, ([cpu, gpu], [cpu, gpu])
    )
    facts = [_method(agent, mechanism.write) for agent in writers]
    facts += [_method(agent, mechanism.read) for agent in readers]
    return next((fact for fact in facts if fact), "")


def _method(named: tuple[str, Agent], method: str) -> str:
    name, agent = named
    fact = agent.methods().get(method, "unknown to its driver")
    return f"the {name} has no {method}: {fact}" if fact else ""
