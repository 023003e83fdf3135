"""The litmus interpreter of umsh/device/steps.h on the modelled machine: the same rows, no C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from umsh.backends.driver import StepRun
from umsh.backends.model import locks
from umsh.backends.model.cost import COST_NS, block_ns, pattern, poll_ns
from umsh.backends.model.memory import ModelMemory
from umsh.backends.model.port import Port
from umsh.backends.model.schedule import Job
from umsh.native import lib

POLLS_MAX = 20_000  # of one wait; the partner is far ahead or gone by then
WORD = 0xFFFFFFFF


def _names(prefix: str, *names: str) -> dict[int, str]:
    return {getattr(lib, f"UMSH_{prefix}_{name.upper()}"): name for name in names}


OPS = _names(
    "STEP", "store", "load", "fence", "write", "read", "fill", "check", "add", "exchange", "cas", "wait", 
    "poll", "lock", "unlock", "increment", "warm", "traffic", "rendezvous", "delay",
)  # fmt: skip
ORDERS = _names("ORDER", "plain", "relaxed", "acquire", "release", "acq_rel", "seq_cst", "split")
WRITES, READS = _names("METHOD", "WA", "WF", "WBp"), _names("METHOD", "RA", "RI", "RB")
LOCKS = {**_names("LOCK", *locks.ALGORITHMS), lib.UMSH_STEP_TEST_THEN_SET: "test_then_set"}
HALF_NBYTES = {lib.UMSH_WIDTH_32: 0, lib.UMSH_WIDTH_64: 4, lib.UMSH_WIDTH_16_PAIR: 2}


@dataclass(frozen=True, slots=True)
class Row:
    """One decoded row. location: in bytes; half: bytes of each half, 0 for one word."""

    op: str
    how: int
    half: int
    control: bool
    location: int
    register: int
    value: int

    @classmethod
    def decode(cls, code: int, location: int, register: int, value: int) -> Row:
        control = bool(location & lib.UMSH_IN_CONTROL)
        place = location & ~lib.UMSH_IN_CONTROL
        half = HALF_NBYTES[code >> 16]
        return cls(OPS[code & 0xFF], code >> 8 & 0xFF, half, control, place, register, value)


class Interpreter:
    """One role of one run. quick_: steps of one event, which return its ns; slow_: steps of several."""

    def __init__(self, port: Port, run: StepRun) -> None:
        self.port = port
        self.run = run
        self.settings = [int(word) for word in run.settings]
        self.rows = [Row.decode(*map(int, row)) for row in run.program[: self.settings[lib.UMSH_SET_STEPS]]]
        self.words, self.control = _model(run.words), _model(run.control)
        home = _model(run.registers).home
        self.registers = home[: len(home) // 4 * 4].view(np.uint32)
        self.instance = self.base = self.first = self.slot = self.control_slot = 0

    def play(self) -> Job[int]:
        """All instances; returns how many were completed."""
        settings, run = self.settings, self.run
        slots = settings[lib.UMSH_SET_SLOTS]
        for instance in range(run.instances):
            slot = instance % slots
            self.instance = instance
            self.base = (settings[lib.UMSH_SET_BASE] + instance // slots * lib.UMSH_EPOCH) & WORD
            self.slot = slot * settings[lib.UMSH_SET_WORDS_SLOT]
            self.control_slot = lib.UMSH_CONTROL_HEADER + slot * settings[lib.UMSH_SET_CONTROL_SLOT]
            self.first = instance * settings[lib.UMSH_SET_REGISTERS]
            for row in self.rows:
                memory, offset = self._place(row)
                slow = getattr(self, f"slow_{row.op}", None)
                if slow is None:
                    yield getattr(self, f"quick_{row.op}")(row, memory, offset)
                elif not (yield from slow(row, memory, offset)):
                    self._header(lib.UMSH_CONTROL_STOP, 0, 1)
                    return instance
            self._header(lib.UMSH_CONTROL_DONE, run.role, instance + 1, "release")
            yield COST_NS["store"]
        return int(run.instances)

    # ---- accesses ----

    def slow_store(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        order, value, half = ORDERS[row.how], (self.base + row.value) & WORD, row.half
        part = value & (1 << 8 * half) - 1
        if not half:
            self.port.store(memory, offset, value, 4, order, wakes=True)
        elif order == "split":
            self.port.store(memory, offset, part, half, "relaxed")
            yield COST_NS["pause"]
            self.port.store(memory, offset + half, part, half, "relaxed")
        else:
            self.port.store_pair(memory, offset, part, half, order)
        yield COST_NS["store"]
        return True

    def quick_load(self, row: Row, memory: ModelMemory, offset: int) -> int:
        half = row.half
        raw = self.port.load(memory, offset, 2 * half or 4, ORDERS[row.how])
        if half:
            self._observe(row.register, raw & (1 << 8 * half) - 1, 8 * half)
            self._observe(row.register + 1, raw >> 8 * half, 8 * half)
        else:
            self._observe(row.register, raw)
        return COST_NS["load"]

    def quick_fence(self, row: Row, memory: ModelMemory, offset: int) -> int:
        self.port.fence(ORDERS[row.how])
        return COST_NS["fence"]

    def quick_write(self, row: Row, memory: ModelMemory, offset: int) -> int:
        self.port.write(memory, offset, (self.base + row.value) & WORD, WRITES[row.how])
        return COST_NS["store"]

    def quick_read(self, row: Row, memory: ModelMemory, offset: int) -> int:
        self._observe(row.register, self.port.read(memory, offset, READS[row.how]))
        return COST_NS["load"]

    def quick_fill(self, row: Row, memory: ModelMemory, offset: int) -> int:
        self.port.write_block(memory, offset, pattern(self.base + 1, row.value), WRITES[row.how])
        return block_ns(row.value)

    def quick_check(self, row: Row, memory: ModelMemory, offset: int) -> int:
        seen = self.port.read_block(memory, offset, row.value, READS[row.how])
        self.registers[self.first + row.register] = seen != pattern(self.base + 1, row.value)
        return block_ns(row.value)

    # ---- read-modify-writes and locks ----

    def slow_add(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        return self._modify(row, memory, offset, lambda old: (old + row.value) & WORD)

    def slow_exchange(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        new = (self.base + row.value) & WORD
        return self._modify(row, memory, offset, lambda old: new)

    def slow_cas(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        expected, desired = (self.base + (row.value & 0xFF)) & WORD, (self.base + (row.value >> 8)) & WORD
        return self._modify(row, memory, offset, lambda old: desired if old == expected else old)

    def slow_increment(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        old = self.port.load(memory, offset)
        yield COST_NS["pause"]
        self.port.store(memory, offset, (old + 1) & WORD)
        self._observe(row.register, old)
        yield COST_NS["store"]
        return True

    def slow_lock(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        return locks.take(self.port, memory, offset, LOCKS[row.how], POLLS_MAX)

    def slow_unlock(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        yield from locks.give(self.port, memory, offset, LOCKS[row.how])
        return True

    # ---- waiting and disturbing ----

    def slow_wait(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        return self._until(row, lambda: self.port.load(memory, offset, 4, ORDERS[row.how]))

    def slow_poll(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        return self._until(row, lambda: self.port.read(memory, offset, READS[row.how]))

    def slow_rendezvous(self, row: Row, memory: ModelMemory, offset: int) -> Job[bool]:
        store, load = ("release", "acquire") if ORDERS[row.how] == "acq_rel" else ("relaxed", "relaxed")
        self._header(lib.UMSH_CONTROL_ARRIVED, self.run.role, self.instance + 1, store)
        for number in range(POLLS_MAX):
            yield poll_ns(number)
            if self._seen(lib.UMSH_CONTROL_ARRIVED, 1 - self.run.role, load) > self.instance:
                return True
            if self._seen(lib.UMSH_CONTROL_STOP, 0):
                return False
        return False

    def quick_warm(self, row: Row, memory: ModelMemory, offset: int) -> int:
        self.port.warm(memory, offset, row.value)
        return block_ns(row.value)

    def quick_traffic(self, row: Row, memory: ModelMemory, offset: int) -> int:
        lines = self.settings[lib.UMSH_SET_SCRATCH_LINES]
        area = self.settings[lib.UMSH_SET_SCRATCH] + self.run.role * lines * lib.UMSH_LINE
        for _ in range(row.value):
            place = area + self.port.chance.randrange(lines) * lib.UMSH_LINE
            self.port.store(self.words, place, self.port.load(self.words, place) + 1)
        return row.value * COST_NS["load"]

    def quick_delay(self, row: Row, memory: ModelMemory, offset: int) -> int:
        return self.port.chance.randrange(row.value + 1) * COST_NS["turn"]

    # ---- shared parts ----

    def _modify(self, row: Row, memory: ModelMemory, offset: int, change: Callable[[int], int]) -> Job[bool]:
        old = yield from locks.modify(self.port, memory, offset, change, ORDERS[row.how] == "split")
        self._observe(row.register, old)
        return True

    def _until(self, row: Row, look: Callable[[], int]) -> Job[bool]:
        late = 0
        for number in range(POLLS_MAX):
            reached = _signed(look() - self.base - row.value, 32) >= 0
            self.registers[self.first + row.register] = reached
            if reached or late > self.settings[lib.UMSH_SET_GRACE]:
                return True
            if late or self._seen(lib.UMSH_CONTROL_DONE, 1 - self.run.role) > self.instance:
                late += 1
            yield poll_ns(number)
        return False

    def _place(self, row: Row) -> tuple[ModelMemory, int]:
        if row.control:
            return self.control, self.control_slot + row.location
        return self.words, self.slot + row.location

    def _observe(self, register: int, raw: int, bits: int = 32) -> None:
        self.registers[self.first + register] = max(0, _signed(raw - self.base, bits))

    def _header(self, offset: int, role: int, value: int, order: str = "relaxed") -> None:
        self.port.store(self.control, offset + role * lib.UMSH_LINE, value, 4, order)

    def _seen(self, offset: int, role: int, order: str = "relaxed") -> int:
        return self.port.load(self.control, offset + role * lib.UMSH_LINE, 4, order)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _model(memory: object) -> ModelMemory:
    if not isinstance(memory, ModelMemory):
        raise TypeError(f"{memory!r} is not memory of a modelled device")
    return memory
