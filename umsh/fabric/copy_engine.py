"""The modelled machine: streams in order, one copy engine a direction, links shared by whoever uses them.

The engine serves what is *ready*, stays with its stream while that has the next copy ready, and knows no
priority: chunks of another stream get in only through a gap. Kernels that read or write host memory (the
stand-in for network traffic) bypass the engine and meet it at the link, where bandwidth divides by weight.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from umsh.fabric.backend import Segments

_OPPOSITE = {"h2d": "d2h", "d2h": "h2d"}


@dataclass(frozen=True)
class MachineModel:
    """Parameters, SI units. Each is fitted to one measurement and used to predict the others
    (docs/fabric.md)."""

    capacity_bps: float = 55.3e9
    """One large copy, host to device or back; p2p has its own."""
    p2p_bps: float = 395e9
    duplex: float = 51 / 55.3
    """Share of its capacity a direction keeps while the other is in use."""
    copy_gap_s: float = 2.4e-6
    """Dead time of the engine before each copy."""
    piece_s: float = 1.3e-6
    """Least time of one piece of a batch."""
    react_s: float = 27e-6
    """From a copy's end until the host has submitted the next."""
    submit_s: float = 10e-6
    """From a call until its first chunk is enqueued."""


class Clock:
    """Virtual time: a queue of callbacks. Ties run in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (max(time_s, self.now_s), next(self._sequence), call))

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, call)

    def step(self, until_s: float = float("inf")) -> bool:
        """Run the next callback not later than `until_s`; False when there is none."""
        if not self._heap or self._heap[0][0] > until_s:
            return False
        self.now_s, _, call = heapq.heappop(self._heap)
        call()
        return True


class ModelEvent:
    """Done or not, and who waits for it."""

    __slots__ = ("done", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.waiters: list[Callable[[], None]] = []

    def fire(self) -> None:
        self.done = True
        waiters, self.waiters = self.waiters, []
        for call in waiters:
            call()


class _Operation(NamedTuple):
    kind: str  # copy, sm, kernel, record, wait
    payload: Any
    done: Callable[[], None] | None = None


class ModelStream:
    """A queue of operations run in order; `priority` is carried and, as on hardware, ignored by copies."""

    def __init__(self, machine: Machine, device: int, priority: int = 0) -> None:
        self.machine, self.device, self.priority = machine, device, priority
        self.capturing = False
        self.captured: list[tuple[str, Segments]] = []
        self._operations: deque[_Operation] = deque()
        self._busy = False

    def enqueue(self, kind: str, payload: Any, done: Callable[[], None] | None = None) -> None:
        self._operations.append(_Operation(kind, payload, done))
        self._advance()

    def idle(self) -> bool:
        return not self._busy and not self._operations

    def _advance(self) -> None:
        while self._operations and not self._busy:
            operation = self._operations.popleft()
            if operation.kind == "record":
                operation.payload.fire()
                continue
            if operation.kind == "wait" and operation.payload.done:
                continue
            self._busy = True
            self._start(operation)

    def _start(self, operation: _Operation) -> None:
        def end() -> None:
            if operation.done is not None:
                operation.done()
            self._busy = False
            self._advance()

        machine = self.machine
        if operation.kind == "wait":
            operation.payload.waiters.append(end)
        elif operation.kind == "kernel":
            machine.clock.after(operation.payload, end)
        elif operation.kind == "sm":
            link, nbytes, weight = operation.payload
            machine.link(link).start(nbytes, weight, end)
        else:
            link, segments = operation.payload
            machine.link(link).engine.ready(self, segments, end)


@dataclass
class _Job:
    remaining: float
    weight: float
    end: Callable[[], None]


@dataclass
class ModelLink:
    """One direction: jobs in progress share its bandwidth by weight."""

    machine: Machine
    name: str
    capacity_bps: float
    jobs: list[_Job] = field(default_factory=list)
    carried_nbytes: float = 0.0
    updated_s: float = 0.0
    version: int = 0

    def __post_init__(self) -> None:
        self.engine = CopyEngine(self)

    def start(self, nbytes: float, weight: float, end: Callable[[], None]) -> None:
        self._change(lambda: self.jobs.append(_Job(nbytes, weight, end)))

    def rate(self, job: _Job) -> float:
        other = self.machine.opposite(self.name)
        duplex = self.machine.model.duplex if other is not None and other.jobs else 1.0
        return self.capacity_bps * duplex * job.weight / sum(other.weight for other in self.jobs)

    def progress(self) -> None:
        elapsed = self.machine.clock.now_s - self.updated_s
        self.updated_s = self.machine.clock.now_s
        for job in self.jobs:
            moved = min(job.remaining, self.rate(job) * elapsed)
            job.remaining -= moved
            self.carried_nbytes += moved

    def _change(self, change: Callable[[], None]) -> None:
        """Bring both directions up to date, change this one, plan both anew: they share the duplex loss."""
        both = [link for link in (self, self.machine.opposite(self.name)) if link is not None]
        for link in both:
            link.progress()
        change()
        for link in both:
            link.plan()

    def plan(self) -> None:
        self.version += 1
        if self.jobs:
            version = self.version
            soonest = min(job.remaining / self.rate(job) for job in self.jobs)
            self.machine.clock.after(soonest, lambda: self._due(version))

    def _due(self, version: int) -> None:
        if version != self.version:
            return
        self.progress()
        ended = [job for job in self.jobs if job.remaining <= 0.5]

        def drop() -> None:
            self.jobs = [job for job in self.jobs if job not in ended]

        self._change(drop)
        for job in ended:
            job.end()


class CopyEngine:
    """Ready first, sticky to the stream, blind to priority; one copy at a time."""

    def __init__(self, link: ModelLink) -> None:
        self.link = link
        self._ready: list[tuple[ModelStream, Segments, Callable[[], None]]] = []
        self._busy = False
        self._stream: ModelStream | None = None

    def ready(self, stream: ModelStream, segments: Segments, end: Callable[[], None]) -> None:
        self._ready.append((stream, segments, end))
        if not self._busy:
            self._serve()

    def _serve(self) -> None:
        if not self._ready:
            return
        at = next((i for i, (stream, *_) in enumerate(self._ready) if stream is self._stream), 0)
        self._stream, segments, end = self._ready.pop(at)
        self._busy = True
        machine = self.link.machine
        data = machine.read(segments)
        least = machine.model.piece_s * self.link.capacity_bps
        cost = sum(segments.sizes) if len(segments.sizes) == 1 else sum(max(n, least) for n in segments.sizes)

        def land() -> None:
            machine.write(segments, data)
            self._busy = False
            end()  # may make the stream's next copy ready, which is what the engine then stays with
            if not self._busy:
                self._serve()

        machine.clock.after(machine.model.copy_gap_s, lambda: self.link.start(cost, 1.0, land))


class Machine:
    """Clock, links and memory of the modelled server; `read` and `write` move real bytes if there are any."""

    def __init__(self, model: MachineModel, clock: Clock) -> None:
        self.model, self.clock = model, clock
        self.links: dict[str, ModelLink] = {}
        self.read: Callable[[Segments], Any] = lambda segments: None
        self.write: Callable[[Segments, Any], None] = lambda segments, data: None

    def link(self, name: str) -> ModelLink:
        if name not in self.links:
            capacity = self.model.p2p_bps if name.startswith("p2p") else self.model.capacity_bps
            self.links[name] = ModelLink(self, name, capacity)
        return self.links[name]

    def opposite(self, name: str) -> ModelLink | None:
        kind, _, device = name.partition(":")
        return self.links.get(f"{_OPPOSITE[kind]}:{device}") if kind in _OPPOSITE else None
