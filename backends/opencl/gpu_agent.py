"""The GPU agent: the kernels of work.cl and steps.cl on a queue of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from umsh.backends.driver import Agent, Memory, Pending, StepRun, check_range
from umsh.backends.opencl.launch import RESULT, Launcher, Slot
from umsh.backends.opencl.runtime import calling
from umsh.backends.pages import view
from umsh.errors import UnsupportedError

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice

BOUND_S = 10.0  # of one wait inside a kernel
# Method and algorithm numbers of umsh.clh; "copy" reads and writes its own device memory plainly.
WRITES = {"WA": 0, "WF": 1, "WBp": 2, "copy": 0}
READS = {"RA": 0, "RI": 1, "RB": 2, "copy": 0}
LOCKS = {"cas": 0, "ticket": 1, "peterson": 2}
LEVELS = ("thread", "block", "grid", "kernel")
# A CPU device walks few long spans, a GPU many neighbouring words.
SPAN_CPU, GROUP_GPU, ITEMS_GPU = 8192, 256, 1 << 16
KERNEL_POLLERS = 1 << 16  # kernel level: no poller waits for another, so this is no limit of progress
KERNEL_ROUNDS_MAX = 1000  # launches queued by one poll("kernel")
# Offset of a role's count of completed instances in StepRun.control (steps.h, UMSH_CONTROL_DONE).
DONE_WORD, ROLE_WORDS = 64, 32


class OpenCLAgent(Agent):
    """Work done by kernels on the device."""

    kind = "gpu"

    def __init__(self, device: OpenCLDevice) -> None:
        self._device = device
        self._launcher = Launcher(device)

    def methods(self) -> Mapping[str, str]:
        return dict.fromkeys((*WRITES, *READS), "")

    def fill(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[None]:
        check_range(memory, offset, nbytes, 4)
        items, group, span = self._shape(nbytes // 4)
        code = np.int32(_number(WRITES, method))
        return self._launcher.run(
            "umsh_fill",
            lambda _: (memory.kernel_arg, *_range(offset, nbytes), np.uint32(seed), span, code),
            items,
            group,
            lambda _: None,
        )

    def check(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[int]:
        check_range(memory, offset, nbytes, 4)
        items, group, span = self._shape(nbytes // 4)
        code = np.int32(_number(READS, method))
        return self._launcher.run(
            "umsh_check",
            lambda slot: (memory.kernel_arg, *_range(offset, nbytes), np.uint32(seed), span, code,
                          slot.kernel_arg),
            items,
            group,
            _result,
        )  # fmt: skip

    def gather(self, memory: Memory, count: int, seed: int, stride: int, method: str) -> Pending[int]:
        check_range(memory, 0, stride, 4, nbytes_min=4)
        items, group, span = self._shape(count)
        places = memory.nbytes // stride
        code = np.int32(_number(READS, method))
        return self._launcher.run(
            "umsh_gather",
            lambda slot: (memory.kernel_arg, np.uint64(places), np.uint64(count), np.uint32(seed),
                          np.uint32(stride), span, code, slot.kernel_arg),
            items,
            group,
            _result,
        )  # fmt: skip

    def steps(self, run: StepRun) -> Pending[int]:
        import pyopencl as cl

        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        rows, words = (
            np.ascontiguousarray(run.program, np.int32),
            np.ascontiguousarray(run.settings, np.uint32),
        )
        with calling("clCreateBuffer"):
            program = cl.Buffer(self._device.context, flags, hostbuf=rows)
            settings = cl.Buffer(self._device.context, flags, hostbuf=words)
        done = view(run.control.address, run.control.nbytes).view(np.uint32)
        return self._launcher.run(
            "umsh_steps",
            lambda _: (program, run.words.kernel_arg, run.registers.kernel_arg, run.control.kernel_arg,
                       np.uint32(run.role), np.uint32(run.instances), settings),
            1,
            1,
            lambda _: int(done[DONE_WORD + ROLE_WORDS * run.role]),
            source="steps.cl",
        )  # fmt: skip

    def echo(self, words: Memory, rounds: int, first: bool) -> Pending[int]:
        polls = self._polls()
        return self._launcher.run(
            "umsh_echo",
            lambda slot: (words.kernel_arg, np.uint32(rounds), np.int32(first), slot.kernel_arg, polls),
            1,
            1,
            _result,
        )

    def lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        polls, code = self._polls(), np.int32(_number(LOCKS, algorithm))
        return self._launcher.run(
            "umsh_lock_rounds",
            lambda slot: (words.kernel_arg, counter.kernel_arg, np.uint32(rounds), code, slot.kernel_arg,
                          polls),
            threads,
            1,
            _result,
        )  # fmt: skip

    def poll(self, words: Memory, level: str, threads: int, rounds: int) -> Pending[int]:
        most = self.pollers_max(level)
        if not 1 <= threads <= most:
            raise UnsupportedError(
                f"{threads} pollers at {level!r} level: this device runs at most {most} at once.",
                "They would wait for each other without end, so none was started.",
                f"Use 1 to {most} threads, or another level.",
            )
        if level == "kernel":
            return self._poll_kernels(words, threads, rounds)
        polls = self._polls()
        alone = level == "thread" and not self._device.quirks.items_progress
        group = 1 if alone else threads // self._groups(threads)
        return self._launcher.run(
            f"umsh_poll_{level}",
            lambda slot: (words.kernel_arg, np.uint32(rounds), slot.kernel_arg, polls),
            threads,
            group,
            _result,
        )

    def pollers_max(self, level: str) -> int:
        if level == "kernel":
            return KERNEL_POLLERS
        if level == "thread" and not self._device.quirks.items_progress:
            return self._groups_max()
        return self._groups_max() * int(self._device.native.max_work_group_size) if level in LEVELS else 0

    def _poll_kernels(self, words: Memory, threads: int, rounds: int) -> Pending[int]:
        """Per round one small kernel that waits, and the kernel of all pollers behind it on the queue."""
        if rounds > KERNEL_ROUNDS_MAX:
            raise UnsupportedError(
                f"{rounds} rounds at kernel level are {2 * rounds} launches.",
                "None was started.",
                f"Use at most {KERNEL_ROUNDS_MAX} rounds.",
            )
        polls = self._polls()
        group = threads // self._groups(threads)

        def launches(slot: Slot) -> list[tuple[Any, ...]]:
            found: list[tuple[Any, ...]] = []
            for number in range(1, rounds + 1):
                common = (words.kernel_arg, np.uint32(number), slot.kernel_arg)
                found.append(("work.cl", "umsh_poll_kernel", (*common, polls), 1, 1))
                found.append(("work.cl", "umsh_answer_kernel", common, threads, group))
            return found

        return self._launcher.run_many(launches, _result)

    def _groups_max(self) -> int:
        """Work-groups that surely run at once: as the runtime is known to, else one a compute unit."""
        return self._device.quirks.groups_max or int(self._device.native.max_compute_units)

    def _groups(self, threads: int) -> int:
        """The most groups that run at once and divide `threads` evenly."""
        most = min(threads, self._groups_max())
        return next(groups for groups in range(most, 0, -1) if threads % groups == 0)

    def _polls(self) -> np.uint64:
        return np.uint64(self._launcher.polls(BOUND_S))

    def _shape(self, count: int) -> tuple[int, int, np.uint32]:
        """(work-items, group size, words each takes in a row) for `count` words."""
        if self._device.is_cpu:
            return max(1, -(-count // SPAN_CPU)), 1, np.uint32(SPAN_CPU)
        groups = max(1, min(-(-count // GROUP_GPU), ITEMS_GPU // GROUP_GPU))
        return groups * GROUP_GPU, GROUP_GPU, np.uint32(1)


def _range(offset: int, nbytes: int) -> tuple[np.uint64, np.uint64]:
    return np.uint64(offset // 4), np.uint64(nbytes // 4)


def _result(slot: Slot) -> int:
    return int(slot.words[RESULT])


def _number(numbers: Mapping[str, int], name: str) -> int:
    if name not in numbers:
        raise UnsupportedError(
            f"The GPU agent has no {name!r}.", "Nothing was started.", f"It has {', '.join(numbers)}."
        )
    return numbers[name]
