"""Launching the driver's own kernels: programs, control words, runs that end by themselves."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from umsh.backends.driver import Pending
from umsh.backends.opencl.memory import argument
from umsh.backends.opencl.quirks import check_linker
from umsh.backends.opencl.runtime import calling, check_process
from umsh.backends.opencl.stream import over, wait_event
from umsh.backends.pages import view
from umsh.device import INCLUDE
from umsh.errors import DeviceError, WaitTimeout

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice

T = TypeVar("T")

HERE = Path(__file__).parent
CONTROL_KINDS = ("svm", "usm-host", "system")  # for the words that stop a run; the documented first
SLOT_BYTES, SLOTS = 512, 64
RESULT, STOP = 0, 32  # word indices of work.cl
RATE_POLLS, RATE_POLLS_MAX, RATE_TIME_NS, RATE_TIMEOUT_S = 1 << 12, 1 << 28, 5_000_000, 60.0


class Slot:
    """The control words of one run, seen by both agents."""

    def __init__(self, address: int) -> None:
        self.words: Any = view(address, SLOT_BYTES).view(np.uint32)
        self.kernel_arg = argument(address, SLOT_BYTES)
        self.event: Any = None  # of the last run that used it
        self.uses: Any = None  # what refers to the memory of a run that is not over


class Run(Pending[T]):
    """A launched kernel and the control words it answers in."""

    def __init__(self, launcher: Launcher, slot: Slot, read: Callable[[Slot], T]) -> None:
        self._launcher = launcher
        self._slot = slot
        self._read = read

    def result(self, timeout_s: float) -> T:
        check_process()
        try:
            wait_event(self._slot.event, timeout_s)
        except WaitTimeout:
            self._slot.words[STOP] = 1  # nobody waits any more, so its polls may end
            raise
        self._slot.uses = None
        return self._read(self._slot)

    def __del__(self) -> None:
        self._launcher.give_back(self._slot)


class Launcher:
    """The agent's queue, its programs, and a bounded number of runs at a time."""

    def __init__(self, device: OpenCLDevice) -> None:
        import pyopencl as cl

        self._device = device
        with calling("clCreateCommandQueue"):
            self.queue = cl.CommandQueue(device.context, device.native)
        kind = next((k for k in CONTROL_KINDS if not device.missing(k)), "")
        self._control = device.allocate(kind, SLOT_BYTES * SLOTS, device.pages_of(kind))
        self._slots = [Slot(self._control.address + SLOT_BYTES * i) for i in range(SLOTS)]
        self._every_slot = tuple(self._slots)  # also those that runs have taken
        self._kernels: dict[tuple[str, str], Any] = {}
        self._programs: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._polls_per_s = 0.0
        self._pid = os.getpid()
        _launchers.add(self)

    def run(
        self,
        name: str,
        args: Callable[[Slot], tuple[Any, ...]],
        items: int,
        group: int,
        read: Callable[[Slot], T],
        source: str = "work.cl",
    ) -> Run[T]:
        """Launch one kernel; `args` and `read` are given the control words of this run."""
        return self.run_many(lambda slot: [(source, name, args(slot), items, group)], read)

    def run_many(
        self, launches: Callable[[Slot], list[tuple[Any, ...]]], read: Callable[[Slot], T]
    ) -> Run[T]:
        """Launch several kernels in order, each (source, name, args, items, group), as one run."""
        slot = self._take(launches)
        try:
            for launch in launches(slot):
                slot.event = self.enqueue(*launch)
        except BaseException:
            self.give_back(slot)
            raise
        return Run(self, slot, read)

    def enqueue(self, source: str, name: str, args: tuple[Any, ...], items: int, group: int) -> Any:
        """Put one kernel on the queue and start it; returns its pyopencl event."""
        check_process()
        with self._lock, calling(name):
            kernel = self._kernels.get((source, name))
            if kernel is None:
                import pyopencl as cl

                kernel = self._kernels[source, name] = cl.Kernel(self._program(source), name)
                # Told once, so that pyopencl does not work out every scalar at every launch.
                kernel.set_scalar_arg_dtypes([a.dtype if isinstance(a, np.generic) else None for a in args])
            event = kernel(self.queue, (items,), (group,), *args)
            self.queue.flush()
            return event

    def polls(self, bound_s: float) -> int:
        """How often a kernel may look at a word in about `bound_s` seconds: kernels have no clock."""
        with self._lock:
            if not self._polls_per_s:
                self._polls_per_s = self._measure_polls_per_s()
        return max(1, int(bound_s * self._polls_per_s))

    def give_back(self, slot: Slot) -> None:
        """Nobody asks for this run any more; one that still polls is told to end."""
        if slot.event is None or over(slot.event):
            slot.uses = None
        else:
            slot.words[STOP] = 1
        self._slots.append(slot)

    def outlive(self) -> None:
        """Let control words and the memory of runs outlive the interpreter; tell runs that poll to end."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        if self._pid == os.getpid():  # a forked child may share the words
            for slot in self._every_slot:
                if slot.event is not None:
                    slot.words[STOP] = 1

    def _take(self, uses: Any) -> Slot:
        """A slot whose last run is over, zeroed; it keeps `uses` alive. DeviceError when all are in use."""
        with self._lock:
            for slot in self._slots:
                if slot.event is None or over(slot.event):
                    self._slots.remove(slot)
                    slot.words[:] = 0
                    slot.event, slot.uses = None, uses
                    return slot
        raise DeviceError(
            f"{SLOTS} runs are pending on {self._device.name}.",
            "No other was started.",
            "Take the results of earlier runs first.",
        )

    def _program(self, source: str) -> Any:
        """The built program of a source file. DeviceError with the compiler's log when it does not build."""
        if source not in self._programs:
            import pyopencl as cl

            quirks = self._device.quirks
            check_linker(quirks)
            options = ["-cl-std=CL3.0", *quirks.build_options, "-I", str(INCLUDE)]
            text = (HERE / source).read_text(encoding="utf-8")
            with warnings.catch_warnings():  # Intel's compiler always says something
                warnings.simplefilter("ignore", cl.CompilerWarning)
                built = cl.Program(self._device.context, text).build(options)
            self._programs[source] = built
        return self._programs[source]

    def _measure_polls_per_s(self) -> float:
        """Time a wait that nobody ends, longer and longer until the launch no longer counts."""
        self._time_polls(1)  # builds the kernel
        polls = RATE_POLLS
        while (passed := self._time_polls(polls)) < RATE_TIME_NS and polls < RATE_POLLS_MAX:
            polls *= 8
        return polls * 1e9 / passed

    def _time_polls(self, polls: int) -> int:
        start = self._device.clock_ns()
        run = self.run(
            "umsh_poll_rate", lambda slot: (slot.kernel_arg, np.uint64(polls)), 1, 1, lambda _: None
        )
        run.result(RATE_TIMEOUT_S)
        return self._device.clock_ns() - start


_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()


def _outlive() -> None:
    """A kernel may still run when the interpreter ends; the system takes the pages after it."""
    for launcher in list(_launchers):
        launcher.outlive()


atexit.register(_outlive)
