"""An agent of the modelled machine: the jobs that tests and benchmarks are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from umsh.backends.driver import Agent, Memory, Pending, StepRun, check_range
from umsh.backends.model import locks
from umsh.backends.model.cost import COST_NS, block_ns, pattern, poll_ns
from umsh.backends.model.interpret import POLLS_MAX, WORD, Interpreter
from umsh.backends.model.memory import ModelMemory
from umsh.backends.model.port import Port
from umsh.backends.model.schedule import Job, Schedule, Together
from umsh.errors import UnsupportedError
from umsh.mechanism import READ_METHODS, THROTTLE_LEVELS, WRITE_METHODS
from umsh.native import lib

T = TypeVar("T")
PING, PONG = 0, 128  # byte offsets of the two flags of echo and poll
POLLERS_MAX = 64
NO_RB = "no load that passes the cache on write-back memory"


class ModelAgent(Agent):
    """The CPU or the GPU of the model."""

    def __init__(self, port: Port, schedule: Schedule) -> None:
        self.kind = port.name
        self.port = port
        self._schedule = schedule

    def methods(self) -> Mapping[str, str]:
        absent = {"copy": "no copy engine"} if self.kind == "gpu" else {"copy": "no copy engine", "RB": NO_RB}
        return {name: absent.get(name, "") for name in (*WRITE_METHODS, *READ_METHODS)}

    def fill(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[None]:
        check_range(memory, offset, nbytes, 4)
        where = self._checked(memory, method)

        def job() -> Job[None]:
            yield COST_NS["launch"]
            self.port.write_block(where, offset, pattern(seed, nbytes), method)
            yield block_ns(nbytes)

        return self._schedule.start(self.port, job())

    def check(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[int]:
        check_range(memory, offset, nbytes, 4)
        where = self._checked(memory, method)

        def job() -> Job[int]:
            yield COST_NS["launch"]
            seen = np.frombuffer(self.port.read_block(where, offset, nbytes, method), np.uint32)
            yield block_ns(nbytes)
            return int(np.count_nonzero(seen != np.frombuffer(pattern(seed, nbytes), np.uint32)))

        return self._schedule.start(self.port, job())

    def gather(self, memory: Memory, count: int, seed: int, stride: int, method: str) -> Pending[int]:
        check_range(memory, 0, stride, 4, nbytes_min=4)
        where = self._checked(memory, method)

        def job() -> Job[int]:
            yield COST_NS["launch"]
            seen = np.frombuffer(self.port.read_block(where, 0, where.nbytes // 4 * 4, method), np.uint32)
            places = np.frombuffer(pattern(seed, 4 * count), np.uint32) % (where.nbytes // stride)
            yield count * COST_NS["load"]
            return int(seen[places * (stride // 4)].sum(dtype=np.uint64)) & WORD

        return self._schedule.start(self.port, job())

    def steps(self, run: StepRun) -> Pending[int]:
        self.port.chance.seed(int(run.settings[lib.UMSH_SET_SEED]) + run.role)
        return self._schedule.start(self.port, Interpreter(self.port, run).play())

    def echo(self, words: Memory, rounds: int, first: bool) -> Pending[int]:
        return self._schedule.start(self.port, self._echo(self._checked(words), rounds, first))

    def poll(self, words: Memory, level: str, threads: int, rounds: int) -> Pending[int]:
        if threads > self.pollers_max(level):
            raise UnsupportedError(
                f"{threads} pollers at level {level!r} were asked for.", "Nothing was started.",
                f"The model has {POLLERS_MAX}, at {', '.join(THROTTLE_LEVELS)}.",
            )  # fmt: skip
        return self._schedule.start(self.port, self._echo(self._checked(words), rounds, first=False))

    def lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        if algorithm not in locks.ALGORITHMS:
            raise UnsupportedError(
                f"Lock {algorithm!r} was asked for.", "Nothing was started.",
                f"Use one of {', '.join(locks.ALGORITHMS)}.",
            )  # fmt: skip
        where, count = self._checked(words), self._checked(counter)
        jobs = [self._lock_rounds(where, count, rounds, algorithm) for _ in range(threads)]
        return Together([self._schedule.start(self.port, job) for job in jobs])

    def pollers_max(self, level: str) -> int:
        return POLLERS_MAX if level in THROTTLE_LEVELS else 0

    def _echo(self, words: ModelMemory, rounds: int, first: bool) -> Job[int]:
        yield COST_NS["launch"]
        mine, theirs = (PING, PONG) if first else (PONG, PING)
        for number in range(1, rounds + 1):
            if first:
                self.port.store(words, mine, number, 4, "release", wakes=True)
            for poll in range(POLLS_MAX):
                yield poll_ns(poll)
                if self.port.load(words, theirs, 4, "acquire") >= number:
                    break
            else:
                return number - 1
            if not first:
                self.port.store(words, mine, number, 4, "release", wakes=True)
        return rounds

    def _lock_rounds(self, where: ModelMemory, count: ModelMemory, rounds: int, algorithm: str) -> Job[int]:
        yield COST_NS["launch"]
        for number in range(rounds):
            if not (yield from locks.take(self.port, where, 0, algorithm, POLLS_MAX)):
                return number
            value = self.port.load(count, 0)
            yield COST_NS["load"]
            self.port.store(count, 0, (value + 1) & WORD)
            yield from locks.give(self.port, where, 0, algorithm)
        return rounds

    def _checked(self, memory: Memory, method: str = "RA") -> ModelMemory:
        missing = self.methods().get(method, "not known")
        if missing:
            raise UnsupportedError(
                f"The model's {self.kind} has no {method}: {missing}.",
                "Nothing was started.",
                "Use another method.",
            )
        if not isinstance(memory, ModelMemory):
            raise TypeError(f"{memory!r} is not memory of a modelled device")
        return memory
