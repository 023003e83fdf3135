"""Virtual time: jobs of the agents as coroutines, interleaved by a seeded adversary."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Generic, TypeVar

from umsh.backends.driver import Event, Pending, Stream
from umsh.backends.model.port import Port
from umsh.errors import WaitTimeout

T = TypeVar("T")
Job = Generator[int, None, T]  # yields what each of its events costs, in ns

JITTER_NS = 150
FOREVER_S = 1e9
EVENTS_MAX = 20_000_000  # of one wait for a job, whose own bounds are smaller


class Running(Pending[T], Generic[T]):
    """One job of one agent on the schedule."""

    def __init__(self, schedule: Schedule, port: Port, job: Job[T]) -> None:
        self._schedule = schedule
        self.port = port
        self.job = job
        self.time_ns = schedule.clock_ns
        self.done = False
        self._value: T | None = None

    def step(self) -> None:
        """One event; at the end the driver's work between kernels."""
        try:
            self.time_ns += next(self.job)
        except StopIteration as stop:
            self._value = stop.value
            self.done = True
            self.port.settle()

    def result(self, timeout_s: float) -> T:
        self._schedule.finish(self, timeout_s)
        return self._value  # type: ignore[return-value]


class Schedule:
    """All jobs of a device. The one furthest behind in time goes next, give or take the jitter."""

    def __init__(self, ports: tuple[Port, Port], chance: random.Random) -> None:
        self.clock_ns = 0
        self._ports = ports
        self._chance = chance
        self._running: list[Running[object]] = []

    def start(self, port: Port, job: Job[T]) -> Running[T]:
        port.settle()
        running = Running(self, port, job)
        self._running.append(running)  # type: ignore[arg-type]
        return running

    def unfinished(self) -> list[Running[object]]:
        return list(self._running)

    def finish(self, wanted: Running[T], timeout_s: float) -> None:
        """Run everything until `wanted` has ended. WaitTimeout after `timeout_s` of virtual time."""
        jitter = self._chance.random
        deadline_ns = self.clock_ns + timeout_s * 1e9
        for _ in range(EVENTS_MAX):
            if wanted.done:
                return
            if wanted.time_ns > deadline_ns:
                break
            turn = min(self._running, key=lambda one: one.time_ns + JITTER_NS * jitter())
            turn.step()
            self.clock_ns = max(self.clock_ns, turn.time_ns)
            if turn.done:
                self._running.remove(turn)
            for port in self._ports:
                port.disturb()
        raise WaitTimeout(
            f"A modelled job did not end within {timeout_s} s of virtual time.",
            "It goes on with the device's next work, to its own bound.",
            "Wait longer, or start its partner.",
        )


class Together(Pending[int]):
    """Several jobs whose results add up."""

    def __init__(self, parts: Sequence[Pending[int]]) -> None:
        self._parts = parts

    def result(self, timeout_s: float) -> int:
        return sum(part.result(timeout_s) for part in self._parts)


class ModelEvent(Event):
    """The jobs that ran when it was recorded."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._jobs = schedule.unfinished()

    def done(self) -> bool:
        return all(job.done for job in self._jobs)

    def wait(self, timeout_s: float) -> None:
        for job in self._jobs:
            self._schedule.finish(job, timeout_s)


class ModelStream(Stream):
    """The device's one order of work."""

    def __init__(self, schedule: Schedule, native: object | None = None) -> None:
        self.native = native
        self._schedule = schedule

    def record(self) -> Event:
        return ModelEvent(self._schedule)

    def wait_event(self, event: Event) -> None:
        event.wait(FOREVER_S)

    def synchronize(self, timeout_s: float) -> None:
        ModelEvent(self._schedule).wait(timeout_s)
