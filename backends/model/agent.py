"""An agent of the modelled machine: the jobs that tests and benchmarks are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from umsh.backends.driver import Agent, Memory, Pending, StepRun, check_range
from umsh.backends.model import cost
from umsh.backends.model.description import Machine
from umsh.backends.model.memory import ModelMemory, every
from umsh.backends.model.schedule import Block, Role, Schedule, Together
from umsh.errors import UnsupportedError
from umsh.mechanism import THROTTLE_LEVELS
from umsh.native import lib

MIB, WORD = 1 << 20, 0xFFFFFFFF
PING, PONG = 0, 128  # byte offsets of the two flags of echo and poll
WORDS_ONLY = "words"  # the kind that carries the harness's own words
METHODS = {
    name: int(getattr(lib, f"UMSH_METHOD_{name.upper()}")) for name in ("WA", "WF", "WBp", "RA", "RI", "RB")
}
ALGORITHMS = ("cas", "ticket", "peterson")
POLLS_MAX = 20_000


class ModelAgent(Agent):
    """The CPU or the GPU of the model."""

    def __init__(self, name: str, machine: Machine, schedule: Schedule) -> None:
        self.kind = name
        self.agent = cost.CPU if name == "cpu" else cost.GPU
        self._machine = machine
        self._schedule = schedule
        self._held = int(machine[f"{name}.cache_size"] * MIB)

    def methods(self) -> Mapping[str, str]:
        methods = self._machine.methods[self.kind]
        return {**dict.fromkeys(methods.has, ""), **methods.absent}

    def fill(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[None]:
        where = self._block(memory, offset, nbytes, method)
        ns = cost.write_ns(self._machine, self.kind, where.text, where.pages, nbytes, method)
        how, sampled, a, held = METHODS[method], every(nbytes), self.agent, self._held

        def act(w: Any) -> None:
            lib.umsh_model_fill(w, a, offset, nbytes, seed & WORD, how, sampled, held)

        return cast(Pending[None], self._start(where, act, ns))

    def check(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[int]:
        where = self._block(memory, offset, nbytes, method)
        ns = cost.read_ns(self._machine, self.kind, where.text, where.pages, nbytes, method)
        how, sampled, a = METHODS[method], every(nbytes), self.agent
        return cast(
            Pending[int],
            self._start(
                where,
                lambda w: int(lib.umsh_model_check(w, a, offset, nbytes, seed & WORD, how, sampled)),
                ns,
            ),
        )

    def gather(self, memory: Memory, count: int, seed: int, stride: int, method: str) -> Pending[int]:
        check_range(memory, 0, stride, 4, nbytes_min=4)
        where = self._data(memory, method)
        ns = count * cost.gather_ns(self._machine, self.kind, where.text, where.pages, where.nbytes, method)
        how, a = METHODS[method], self.agent
        return cast(
            Pending[int],
            self._start(
                where, lambda w: int(lib.umsh_model_gather(w, a, count, seed & WORD, stride, how)), ns
            ),
        )

    def steps(self, run: StepRun) -> Pending[int]:
        settings = np.ascontiguousarray(run.settings, np.uint32)
        self._schedule.seed(int(settings[lib.UMSH_SET_SEED]) + run.role)
        home = self._checked(run.registers).home
        words, control = self._checked(run.words), self._checked(run.control)
        rows = np.ascontiguousarray(run.program, np.int32)
        job = {"role": run.role, "instances": run.instances}
        return self._role([words, control], rows, settings, home[: len(home) // 4 * 4].view(np.uint32), job)

    def echo(self, words: Memory, rounds: int, first: bool) -> Pending[int]:
        return self._echo(self._data(words), rounds, first, {})

    def poll(self, words: Memory, level: str, threads: int, rounds: int) -> Pending[int]:
        if threads > self.pollers_max(level):
            raise UnsupportedError(
                f"{threads} pollers at level {level!r} were asked for.", "Nothing was started.",
                f"The model has {self.pollers_max('thread')}, at {', '.join(THROTTLE_LEVELS)}.",
            )  # fmt: skip
        added = int(cost.round_ns(self._machine, level, threads))
        return self._echo(self._data(words), rounds, False, {"round_ns": added})

    def lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        if algorithm not in ALGORITHMS:
            raise UnsupportedError(
                f"Lock {algorithm!r} was asked for.", "Nothing was started.",
                f"Use one of {', '.join(ALGORITHMS)}.",
            )  # fmt: skip
        how = getattr(lib, f"UMSH_LOCK_{algorithm.upper()}") << 8
        rows = [
            (lib.UMSH_STEP_LOCK | how, 0, 0, 0),
            (lib.UMSH_STEP_INCREMENT, lib.UMSH_IN_CONTROL, 0, 0),
            (lib.UMSH_STEP_UNLOCK | how, 0, 0, 0),
        ]
        where = [self._data(words), self._data(counter)]
        return Together([self._bare(where, rows, rounds, {}) for _ in range(threads)])

    def pollers_max(self, level: str) -> int:
        return int(self._machine["gpu.threads"]) if level in THROTTLE_LEVELS else 0

    def _echo(self, words: ModelMemory, rounds: int, first: bool, job: dict[str, int]) -> Pending[int]:
        mine, theirs = (PING, PONG) if first else (PONG, PING)
        tell = (lib.UMSH_STEP_STORE | lib.UMSH_ORDER_RELEASE << 8, mine, 0, 1)
        listen = (lib.UMSH_STEP_WAIT | lib.UMSH_ORDER_ACQUIRE << 8, theirs, 0, 1)
        return self._bare([words], [tell, listen] if first else [listen, tell], rounds, job)

    def _bare(self, memories: list[ModelMemory], rows: Sequence[tuple[int, ...]], rounds: int,
              job: dict[str, int]) -> Pending[int]:  # fmt: skip
        """A program of the driver's own: one slot, values that count the rounds, no control words."""
        settings = np.zeros(lib.UMSH_SET_COUNT, np.uint32)
        settings[[lib.UMSH_SET_STEPS, lib.UMSH_SET_REGISTERS, lib.UMSH_SET_SLOTS]] = len(rows), 0, 1
        settings[lib.UMSH_SET_GRACE] = POLLS_MAX
        where = {"instances": rounds, "epoch": 1, "bare": 1, **job}
        return self._role(memories, np.array(rows, np.int32), settings, np.zeros(1, np.uint32), where)

    def _role(self, memories: list[ModelMemory], rows: Any, settings: Any, registers: Any,
              job: dict[str, int]) -> Pending[int]:  # fmt: skip
        begun = self._schedule.clock_ns + cost.start_ns(self._machine, self.kind)
        role = Role(self._schedule, self.agent, begun, memories, rows, settings, registers, job)
        return self._schedule.start(role)  # type: ignore[no-any-return]

    def _start(self, memory: ModelMemory, act: Any, ns: float) -> Any:
        begun = self._schedule.clock_ns + cost.start_ns(self._machine, self.kind)
        return self._schedule.start(Block(self._schedule, self.agent, begun, memory, act, ns))

    def _block(self, memory: Memory, offset: int, nbytes: int, method: str) -> ModelMemory:
        check_range(memory, offset, nbytes, 4)
        return self._data(memory, method)

    def _data(self, memory: Memory, method: str = "RA") -> ModelMemory:
        where = self._checked(memory, method)
        if where.kind.name == WORDS_ONLY:
            raise UnsupportedError(
                "Memory of kind 'words' is for litmus tests.", "Nothing was started.", "Use another."
            )
        return where

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
