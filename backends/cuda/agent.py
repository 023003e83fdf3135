"""The GPU agent of CUDA devices: kernels of work.cu, control.cu and steps.cu on a stream of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from umsh.backends.cuda.launch import (
    GRID_OFFSET,
    LOOP_TIMEOUT_S,
    KernelPending,
    Launcher,
    Slot,
    ThreadPending,
)
from umsh.backends.delegate import serving
from umsh.backends.driver import Agent, Memory, Pending, StepRun
from umsh.errors import NeedError, UnsupportedError
from umsh.native import lib

if TYPE_CHECKING:
    from umsh.backends.cuda.device import CudaDevice

# Method and algorithm numbers of the kernels; "copy" reads and writes its own device memory plainly.
WRITES = {"WA": 0, "WF": 1, "WBp": 2, "copy": 0}
READS = {"RA": 0, "RI": 1, "RB": 2, "copy": 0}
LOCKS = {"cas": 0, "ticket": 1, "peterson": 2, "delegated": 3}
LEVELS = {"thread": 0, "block": 1, "grid": 2}
BLOCK_THREADS = 256
BLOCKS_PER_SM = 8
POLL_BLOCKS_PER_SM = 4  # __launch_bounds__ of umsh_poll
ARRIVED_OFFSET = 8  # of umsh_total in work.cu
TIMEOUT_NS = int(LOOP_TIMEOUT_S * 1e9)


class CudaAgent(Agent):
    """Work done by kernels on the device. Every loop in them ends after LOOP_TIMEOUT_S."""

    kind = "gpu"

    def __init__(self, device: CudaDevice, launcher: Launcher) -> None:
        self._device = device
        self.launcher = launcher

    def methods(self) -> Mapping[str, str]:
        return dict.fromkeys((*WRITES, *READS), "")

    def fill(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[None]:
        count, quads = _extent(memory, offset, nbytes)
        slot = self.launcher.slot(memory)
        args = (memory.device_address + offset, count, quads, seed, _number(WRITES, method))
        self.launcher.launch("work.cu", "umsh_fill", self._shape(count, quads), args, slot)
        return KernelPending(slot, lambda _: None)

    def check(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[int]:
        count, quads = _extent(memory, offset, nbytes)
        slot = self.launcher.slot(memory)
        where = (memory.device_address + offset, count, quads)
        args = (*where, seed, _number(READS, method), slot.scratch, slot.result)
        self.launcher.launch("work.cu", "umsh_check", self._shape(count, quads), args, slot)
        return KernelPending(slot, int)

    def gather(self, memory: Memory, count: int, seed: int, stride: int, method: str) -> Pending[int]:
        places = memory.nbytes // stride
        if stride % 4 or not places:
            raise NeedError(
                f"stride={stride} does not fit a region of {memory.nbytes} bytes in whole words.",
                "Nothing was read.",
                "Use a multiple of 4 that is at most the region's size.",
            )
        slot = self.launcher.slot(memory)
        where = (memory.device_address, places, stride // 4, count)
        args = (*where, seed, _number(READS, method), slot.scratch, slot.result)
        self.launcher.launch("work.cu", "umsh_gather", self._shape(count, 0), args, slot)
        return KernelPending(slot, lambda total: total & 0xFFFFFFFF)

    def read_passes(self, address: int, nbytes: int, passes: int) -> Pending[int]:
        """Read nbytes (a multiple of 16) at a device address `passes` times; the sum of its words."""
        slot = self.launcher.slot()
        args = (address, nbytes // 16, passes, slot.scratch, slot.result)
        self.launcher.launch("work.cu", "umsh_passes", self._shape(nbytes // 4, nbytes // 16), args, slot)
        return KernelPending(slot, int)

    def steps(self, run: StepRun) -> Pending[int]:
        locks = _delegated_locks(run)
        if locks is None:
            return self._steps(run)
        return serving(*locks, lambda: self._steps(run))

    def _steps(self, run: StepRun) -> Pending[int]:
        slot = self.launcher.slot(run.words, run.registers, run.control)
        program, settings = self.launcher.tables(run.program, run.settings)
        where = (run.words.device_address, run.registers.device_address, run.control.device_address)
        args = (program, *where, run.role, run.instances, settings, slot.result)
        self.launcher.launch("steps.cu", "umsh_steps", (1, 1), args, slot)
        return KernelPending(slot, int)

    def echo(self, words: Memory, rounds: int, first: bool) -> Pending[int]:
        slot = self.launcher.slot(words)
        args = (words.device_address, rounds, int(first), TIMEOUT_NS, self.launcher.abort, slot.result)
        self.launcher.launch("control.cu", "umsh_echo", (1, 1), args, slot)
        return KernelPending(slot, int)

    def lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        def start() -> Pending[int]:
            return self._lock_rounds(words, counter, rounds, algorithm, threads)

        return serving(words.address, 1, 0, start) if algorithm == "delegated" else start()

    def _lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        slot = self.launcher.slot(words, counter)
        self.launcher.clear(slot)
        where = (words.device_address, counter.device_address, rounds, _number(LOCKS, algorithm))
        counts = (slot.scratch + ARRIVED_OFFSET, slot.scratch, slot.result)
        args = (*where, TIMEOUT_NS, self.launcher.abort, *counts)
        self.launcher.launch("control.cu", "umsh_lock_rounds", (threads, 1), args, slot)
        return KernelPending(slot, int)

    def poll(self, words: Memory, level: str, threads: int, rounds: int) -> Pending[int]:
        most = self.pollers_max(level)
        if not 1 <= threads <= most:
            raise UnsupportedError(
                f"{threads} pollers at {level!r} level: this device runs at most {most} at once.",
                "They would wait for each other without end, so none was started.",
                f"Use 1 to {most} threads, or another level.",
            )
        slot = self.launcher.slot(words)
        self.launcher.clear(slot)
        shape = (-(-threads // BLOCK_THREADS), min(threads, BLOCK_THREADS))
        if level == "kernel":
            # The driver blocks once about a thousand launches are queued: never in the caller's thread.
            return ThreadPending(self.launcher.threads.submit(self._poll_kernels, words, slot, shape, rounds))
        counts = (slot.scratch + GRID_OFFSET, slot.scratch + ARRIVED_OFFSET)
        where = (words.device_address, rounds, LEVELS[level], *counts)
        args = (*where, TIMEOUT_NS, self.launcher.abort, slot.result)
        self.launcher.launch("control.cu", "umsh_poll", shape, args, slot, cooperative=level == "grid")
        return KernelPending(slot, int)

    def _poll_kernels(self, words: Memory, slot: Slot, shape: tuple[int, int], rounds: int) -> int:
        """One waiting kernel and one kernel of pollers a round; the stream orders them."""
        launch, arrived = self.launcher.launch, slot.scratch + ARRIVED_OFFSET
        for number in range(1, rounds + 1):
            gate = (words.device_address, number, TIMEOUT_NS, self.launcher.abort, slot.result)
            launch("control.cu", "umsh_poll_gate", (1, 1), gate)
            after = (words.device_address, number, arrived, slot.result)
            launch("control.cu", "umsh_poll_after", shape, after, slot)
        pending: KernelPending[int] = KernelPending(slot, int)
        return pending.result(2 * LOOP_TIMEOUT_S + rounds * 0.01)

    def pollers_max(self, level: str) -> int:
        """Pollers of umsh_poll that are certain to run at once; 0 for "grid" without COOPERATIVE_LAUNCH.

        Its launch bounds guarantee the blocks of a multiprocessor, so nothing is compiled to know it.
        """
        attributes = self._device.attributes
        if level == "grid" and not attributes["cooperative_launch"]:
            return 0
        each = min(POLL_BLOCKS_PER_SM * BLOCK_THREADS, attributes["max_threads_per_multiprocessor"])
        return attributes["multiprocessor_count"] * each

    def _shape(self, count: int, quads: int) -> tuple[int, int]:
        items = max(quads, min(count, 1 << 20) if not quads else 1)
        most = self._device.attributes["multiprocessor_count"] * BLOCKS_PER_SM
        return max(1, min(-(-items // BLOCK_THREADS), most)), BLOCK_THREADS


def _extent(memory: Memory, offset: int, nbytes: int) -> tuple[int, int]:
    """(words, whole groups of four of them that are 16-byte aligned) of a part of a region."""
    if offset < 0 or nbytes < 4 or offset % 4 or nbytes % 4 or offset + nbytes > memory.nbytes:
        raise NeedError(
            f"Bytes {offset} to {offset + nbytes} are no whole words of a region of {memory.nbytes} bytes.",
            "Nothing was launched.",
            "Use offsets and sizes that are multiples of 4, inside the region.",
        )
    aligned = (memory.device_address + offset) % 16 == 0
    return nbytes // 4, nbytes // 16 if aligned else 0


def _delegated_locks(run: StepRun) -> tuple[int, int, int] | None:
    """(address, count, stride) of the delegated lock a step program takes, one in each slot; None without."""
    for code, location, *_ in run.program:
        if int(code) & 0xFF == lib.UMSH_STEP_LOCK and int(code) >> 8 & 0xFF == lib.UMSH_LOCK_DELEGATED:
            slots, stride = (int(run.settings[at]) for at in (lib.UMSH_SET_SLOTS, lib.UMSH_SET_WORDS_SLOT))
            return run.words.address + int(location), slots, stride
    return None


def _number(table: Mapping[str, int], name: str) -> int:
    if name not in table:
        raise UnsupportedError(
            f"{name!r} is none of {', '.join(table)}.", "Nothing was launched.", "Use one of these."
        )
    return table[name]
