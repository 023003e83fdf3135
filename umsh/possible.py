"""Possible: what a device can do for a need, and what of that is safe before any probe has run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umsh.mechanism import THROTTLE_LEVELS, Mechanism, MemoryKind

if TYPE_CHECKING:
    from umsh.backends.driver import Agent, Device
    from umsh.machine import Platform
    from umsh.need import Need

COPY = "copy"


def missing(device: Device, mechanism: Mechanism, need: Need) -> str:
    """The fact this device lacks for `mechanism` to meet `need`; "" when it can."""
    if fact := _missing_kind(device, mechanism.memory):
        return fact
    kind = next(kind for kind in device.memory_kinds() if kind.name == mechanism.memory)
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


def missing_control(device: Device, pattern: str, memory: str, method: str, threads: int) -> str:
    """The fact this device lacks for flags ("wait") or locks of `threads` GPU threads; "" when it can."""
    if fact := _missing_kind(device, memory):
        return fact
    if pattern == "lock":
        return device.lock_algorithms().get(method, f"driver {device.driver!r} has no {method!r} lock")
    most = device.gpu.pollers_max(method)
    return "" if threads <= most else f"{most} pollers can run at {method!r} level, not {threads}"


def safe_controls(
    device: Device, pattern: str, platform: Platform | None, threads: int = 1
) -> tuple[tuple[str, str], ...]:
    """(memory kind, method) pairs the vendor guarantees for flags ("wait") or locks here, preferred first."""
    memories = [kind.name for kind in device.memory_kinds() if _guaranteed(kind, "inside")]
    wait, lock = THROTTLE_LEVELS[0], "peterson"
    if platform is not None:
        memories = [name for name in platform.safe_memory if name in memories]
        wait, lock = platform.safe_wait, platform.safe_lock
    # Throttling more is slower, never wrong; another lock algorithm could be.
    methods = dict.fromkeys((wait, *THROTTLE_LEVELS)) if pattern == "wait" else [lock]
    return tuple(
        (name, method)
        for name in memories
        for method in methods
        if not missing_control(device, pattern, name, method, threads)
    )


def _guaranteed(kind: MemoryKind, boundary: str) -> bool:
    return not kind.absent and (kind.inside if boundary == "inside" else kind.documented)


def _plain(kind: MemoryKind) -> Mechanism:
    """The mechanism that is right for memory of this coherence, nothing else being known."""
    if kind.name == COPY:
        return Mechanism(kind.name, kind.pages[0], COPY, COPY)
    write, read = ("WA", "RA") if kind.coherence == "two-way" else ("WF", "RI")
    return Mechanism(kind.name, kind.pages[0], write, read)


def _missing_kind(device: Device, memory: str) -> str:
    kinds = {kind.name: kind for kind in device.memory_kinds()}
    if memory not in kinds:
        return f"driver {device.driver!r} has no memory kind {memory!r}, only {', '.join(kinds)}"
    return kinds[memory].absent and f"{memory!r} memory is absent: {kinds[memory].absent}"


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
