"""The CPU agent of every real driver: threads of this process running the native primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, TypeVar

import numpy as np

from umsh.backends.driver import Agent, Memory, Pending, StepRun, check_range
from umsh.errors import UnsupportedError, WaitTimeout
from umsh.native import ffi, lib

T = TypeVar("T")

BOUND_NS = 10_000_000_000  # of one wait inside the native code
THREADS_MAX = 64
WRITES = {
    "WA": lib.UMSH_WRITE_ALONE,
    "WF": lib.UMSH_WRITE_FLUSH,
    "WBp": lib.UMSH_WRITE_BYPASS,
    "copy": lib.UMSH_WRITE_ALONE,
}
READS = {"RA": lib.UMSH_READ_ALONE, "RI": lib.UMSH_READ_INVALIDATE, "copy": lib.UMSH_READ_ALONE}
LOCKS = {
    "cas": lib.UMSH_LOCK_CAS,
    "ticket": lib.UMSH_LOCK_TICKET,
    "peterson": lib.UMSH_LOCK_PETERSON,
    "delegated": lib.UMSH_LOCK_DELEGATED,
}
# Platforms facts 3.1: MOVNTDQA streams only from write-combined memory; aarch64 LDNP is a hint.
NO_RB = "no instruction of user space reads write-back memory past the CPU's caches"


class Done(Pending[T]):
    """Work that had ended when its method returned."""

    def __init__(self, value: T) -> None:
        self._value = value

    def result(self, timeout_s: float) -> T:
        return self._value


class Threads(Pending[T]):
    """Work on threads of their own; the native loops end by themselves."""

    def __init__(self, works: list[futures.Future[int]], combine: Callable[[list[int]], T]) -> None:
        self._works = works
        self._combine = combine

    def result(self, timeout_s: float) -> T:
        left = futures.wait(self._works, timeout_s).not_done
        if left:
            raise WaitTimeout(
                f"{len(left)} CPU threads were still working after {timeout_s} s.",
                "They end by themselves at their own bound.",
                "Check that the partner was started.",
            )
        return self._combine([work.result() for work in self._works])


class CpuAgent(Agent):
    """Work done by this process's threads.

    fill, check and gather need no partner: they run in the calling thread, without the cost of another.
    check_process: raises when this process may not use the device (a forked child). pace: see Agent.
    """

    kind = "cpu"

    def __init__(self, check_process: Callable[[], None], pace: int = 1) -> None:
        self._check_process = check_process
        self.pace = pace
        self._pool = futures.ThreadPoolExecutor(THREADS_MAX, "umsh-cpu")

    def methods(self) -> Mapping[str, str]:
        return {**dict.fromkeys((*WRITES, *READS), ""), "RB": NO_RB}

    def fill(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[None]:
        check_range(memory, offset, nbytes, 4)
        lib.umsh_fill(memory.address + offset, nbytes, seed, _number(WRITES, method))
        return Done(None)

    def check(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[int]:
        check_range(memory, offset, nbytes, 4)
        return Done(int(lib.umsh_check(memory.address + offset, nbytes, seed, _number(READS, method))))

    def gather(self, memory: Memory, count: int, seed: int, stride: int, method: str) -> Pending[int]:
        check_range(memory, 0, stride, 4, nbytes_min=4)
        code = _number(READS, method)
        return Done(int(lib.umsh_gather(memory.address, memory.nbytes, count, seed, stride, code)))

    def steps(self, run: StepRun) -> Pending[int]:
        program = np.ascontiguousarray(run.program, np.int32)
        settings = np.ascontiguousarray(run.settings, np.uint32)

        def work() -> int:
            return int(
                lib.umsh_steps(
                    ffi.cast("uintptr_t", ffi.from_buffer(program)),
                    run.words.address,
                    run.registers.address,
                    run.control.address,
                    run.role,
                    run.instances,
                    ffi.cast("uintptr_t", ffi.from_buffer(settings)),
                )
            )

        return self._start([work], sum)

    def echo(self, words: Memory, rounds: int, first: bool) -> Pending[int]:
        return self._start([lambda: lib.umsh_echo(words.address, rounds, first, BOUND_NS)], sum)

    def lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        code, place, count = _number(LOCKS, algorithm), words.address, counter.address
        _check_threads(threads)
        work = lambda: lib.umsh_lock_rounds(place, count, rounds, code, 0, BOUND_NS)  # noqa: E731
        return self._start([work] * threads, sum)

    def poll(self, words: Memory, level: str, threads: int, rounds: int) -> Pending[int]:
        if level != "thread":
            raise UnsupportedError(
                f"CPU threads are not throttled at {level!r} level.", "Nothing was started.", "Use 'thread'."
            )
        _check_threads(threads)
        return self._start(
            [lambda: lib.umsh_poll_answer(words.address, rounds, threads, BOUND_NS)] * threads, min
        )

    def pollers_max(self, level: str) -> int:
        return THREADS_MAX if level == "thread" else 0

    def _start(self, works: list[Callable[[], Any]], combine: Callable[[list[int]], T]) -> Pending[T]:
        self._check_process()
        return Threads([self._pool.submit(work) for work in works], combine)


def _check_threads(threads: int) -> None:
    if not 1 <= threads <= THREADS_MAX:
        raise UnsupportedError(
            f"{threads} CPU threads were asked for.", "None was started.", f"Use 1 to {THREADS_MAX}."
        )


def _number(numbers: Mapping[str, int], name: str) -> int:
    if name not in numbers:
        raise UnsupportedError(
            f"The CPU agent has no {name!r}{': ' + NO_RB if name == 'RB' else ''}.",
            "Nothing was started.",
            f"It has {', '.join(numbers)}.",
        )
    return numbers[name]
