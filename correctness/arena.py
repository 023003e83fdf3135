"""The memory one litmus run plays in, and the launching of its roles."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umsh.backends.driver import Agent, Device, Memory, Pending, StepRun
from umsh.correctness.encode import Layout, Rows
from umsh.correctness.stress import SCRATCH_LINES, Stress
from umsh.correctness.subjects import Subject
from umsh.mechanism import MemoryKind
from umsh.native import ffi, lib

DEADLINE_S = 60.0  # far above what the interpreters' own bounds allow
REGISTERS_MAX = 8


def safe_kind(device: Device) -> MemoryKind | None:
    """The first kind the vendor guarantees both between kernels and inside one; None without any.

    Rendezvous words and registers live there: the harness must not rest on what it tests.
    """
    kinds = device.memory_kinds()
    return next((kind for kind in kinds if not kind.absent and kind.documented and kind.inside), None)


class Arena:
    """Words of the subject's kind, control words and registers of the safe kind, for `roles` roles."""

    def __init__(
        self, device: Device, subject: Subject, where: Layout, roles: int, slots: int, chunk: int
    ) -> None:
        kinds = {kind.name: kind for kind in device.memory_kinds()}
        safe = safe_kind(device)
        if safe is None:
            raise ValueError("an arena needs memory that is documented inside a kernel")
        self.device, self.where, self.slots, self.chunk = device, where, slots, chunk
        self.base = 0
        self._made: list[Memory] = []
        self._scratch = slots * where.words_slot
        self.words = self._make(kinds[subject.memory], self._scratch + 2 * SCRATCH_LINES * lib.UMSH_LINE)
        self.control = self._make(safe, lib.UMSH_CONTROL_HEADER + slots * where.control_slot)
        self.registers = [self._make(safe, chunk * REGISTERS_MAX * 4) for _ in range(roles)]
        self._header = _view(self.control.address, lib.UMSH_CONTROL_HEADER)

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if kind is not None:
            self.abandon()
        for memory in self._made:
            memory.free()

    def abandon(self) -> None:
        """Work may still run in the memory: leave it to the driver, which frees it at the last reference."""
        self._made.clear()

    def begin(self) -> None:
        """Nobody has arrived, nobody is done, nobody has stopped."""
        self._header[:] = 0

    def advance(self, instances: int) -> None:
        """What the last `instances` left behind counts as initial from now on."""
        self.base += -(-instances // self.slots) * lib.UMSH_EPOCH

    def start(self, agent: Agent, number: int, program: Rows, registers: int, instances: int,
              stress: Stress) -> Pending[int]:  # fmt: skip
        """Start role `number` on `agent`; `registers` is how many it has."""
        settings = np.zeros(lib.UMSH_SET_COUNT, np.uint32)
        settings[lib.UMSH_SET_STEPS] = len(program)
        settings[lib.UMSH_SET_REGISTERS] = registers
        settings[lib.UMSH_SET_SLOTS] = self.slots
        settings[lib.UMSH_SET_WORDS_SLOT] = self.where.words_slot
        settings[lib.UMSH_SET_CONTROL_SLOT] = self.where.control_slot
        settings[lib.UMSH_SET_BASE] = self.base
        settings[lib.UMSH_SET_SEED] = stress.seed
        settings[lib.UMSH_SET_SPINS] = stress.spins
        settings[lib.UMSH_SET_GRACE] = stress.grace
        settings[lib.UMSH_SET_SCRATCH] = self._scratch
        settings[lib.UMSH_SET_SCRATCH_LINES] = SCRATCH_LINES
        settings[lib.UMSH_SET_PACE] = agent.pace
        rows = program if len(program) else np.zeros((1, 4), np.int32)
        return agent.steps(
            StepRun(rows, self.words, self.registers[number], self.control, number % 2, instances, settings)
        )

    def seen(self, number: int, registers: int, instances: int) -> NDArray[np.uint32]:
        """uint32 [instances][registers] of a role that has ended."""
        words = _view(self.registers[number].address, self.chunk * REGISTERS_MAX * 4).view(np.uint32)
        return words[: instances * registers].reshape(instances, registers).copy()

    def hand_over(self, agent: Agent) -> None:
        """What `agent` wrote to a memory of two copies becomes the other agent's."""
        stream = self.device.stream()
        move = self.words.upload if agent.kind == "cpu" else self.words.download
        event = move(0, self.words.nbytes, stream)
        if event is not None:
            event.wait(DEADLINE_S)

    def _make(self, kind: MemoryKind, nbytes: int) -> Memory:
        memory = self.device.allocate(kind.name, nbytes, kind.pages[0])
        self._made.append(memory)
        return memory


def _view(address: int, nbytes: int) -> NDArray[Any]:
    return np.frombuffer(ffi.buffer(ffi.cast("void *", address), nbytes), np.uint8)
