"""Launches of umsh's own kernels: result slots, the abort word, and pending results."""

from __future__ import annotations

import atexit
import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from umsh.backends.cuda.calls import check, check_process, driver, forked
from umsh.backends.cuda.memory import allocate_host
from umsh.backends.cuda.program import Program
from umsh.backends.cuda.stream import CudaEvent, CudaStream, still_running
from umsh.backends.driver import Memory, Pending
from umsh.errors import DeviceError, NeedError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from umsh.backends.cuda.device import CudaDevice

T = TypeVar("T")
SLOTS = 64  # launches whose results have not been read; the 65th waits for the first
SLOT_BYTES = 128
TABLES_BYTES = 1 << 18  # step programs and their settings
GRID_OFFSET = 16  # of a slot's device side: umsh_total first, then umsh_grid
LOOP_TIMEOUT_S = 5.0  # bound of one wait or lock inside our kernels
RESULT_TIMEOUT_S = 60.0

ARGS_MAX = 16


class Slot:
    """Where one launch leaves its result.

    word: the 64-bit word the CPU reads; result: its device address. scratch: zeroed device memory.
    uses: how many launches have had the slot. keeps: the memory of the last, until it is over.
    """

    def __init__(self, device: CudaDevice, host: int, result: int, scratch: int) -> None:
        self.word = ctypes.c_uint64.from_address(host)
        self.result = result
        self.scratch = scratch
        self.event = CudaEvent(device)
        self.uses = 0
        self.keeps: tuple[Memory, ...] = ()


class KernelPending(Pending[T], Generic[T]):
    """Work on a stream; `read` turns the slot's word into the result once the event has passed."""

    def __init__(self, slot: Slot, read: Callable[[int], T]) -> None:
        self._slot = slot
        self._use = slot.uses
        self._read = read

    def result(self, timeout_s: float) -> T:
        slot = self._slot
        if slot.uses == self._use:
            slot.event.wait(timeout_s)
            value = int(slot.word.value)
            if slot.uses == self._use:
                slot.keeps = ()
                return self._read(value)
        raise DeviceError(
            f"{SLOTS} later launches came before this result was read.",
            "It was overwritten; the work itself was done.",
            "Read each result before starting so many others.",
        )


class ThreadPending(Pending[T], Generic[T]):
    """Work that a CPU thread drives on the device."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def result(self, timeout_s: float) -> T:
        from concurrent.futures import TimeoutError as Late

        try:
            return self._future.result(timeout_s)
        except Late:
            raise still_running(timeout_s) from None


class Launcher:
    """A stream of our own, its compiled kernels and its result slots."""

    def __init__(self, device: CudaDevice, undo: ExitStack) -> None:
        self._device = device
        self.stream = CudaStream(device)
        self.threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="umsh-cuda")
        address, pointer = allocate_host(undo, (SLOTS + 1) * SLOT_BYTES, write_combined=False)
        total = SLOTS * SLOT_BYTES + TABLES_BYTES
        (scratch,) = check(driver().cuMemAlloc(total), "cuMemAlloc of result slots")
        check(driver().cuMemsetD8(scratch, 0, total), "cuMemsetD8")
        self._tables = int(scratch) + SLOTS * SLOT_BYTES
        spaced = [at * SLOT_BYTES for at in range(SLOTS)]
        self._slots = [Slot(device, address + at, pointer + at, int(scratch) + at) for at in spaced]
        self._next = 0
        self._args = np.zeros(ARGS_MAX, np.uint64)
        first = self._args.ctypes.data
        self._places = np.arange(first, first + 8 * ARGS_MAX, 8, dtype=np.uint64)
        self._params = int(self._places.ctypes.data)  # what cuLaunchKernel takes: where each argument is
        self._lock = threading.Lock()  # of the argument array: the driver copies it in the call
        self._abort = address + SLOTS * SLOT_BYTES
        self.abort = pointer + SLOTS * SLOT_BYTES
        self._programs: dict[str, Program] = {}
        _launchers.add(self)

    def program(self, file: str) -> Program:
        if file not in self._programs:
            with self._device.current():
                self._programs[file] = Program(file, self._device.capability)
        return self._programs[file]

    def stop_all(self) -> None:
        """Make every wait inside running kernels of ours end; they report the rounds they completed."""
        ctypes.c_uint32.from_address(self._abort).value = 1

    def outlive(self) -> None:
        """Let the memory of launches outlive the interpreter, and tell kernels that wait to end."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        if not forked():  # the words are the parent's
            self.stop_all()

    def slot(self, *keeps: Memory) -> Slot:
        """The next result slot, its word zeroed; waits for the launch that used it last.

        keeps: memory of the launch to come; it stays allocated until the launch is over, whoever drops it.
        """
        with self._lock:
            slot = self._slots[self._next]
            self._next = (self._next + 1) % SLOTS
        if slot.uses:
            slot.event.wait(RESULT_TIMEOUT_S)
        slot.uses += 1
        slot.keeps = keeps
        slot.word.value = 0
        return slot

    def clear(self, slot: Slot) -> None:
        """Zero a slot's scratch on the stream: a control kernel that timed out leaves it counted up."""
        with self._device.current():
            check(
                driver().cuMemsetD8Async(slot.scratch, 0, SLOT_BYTES, self.stream.native), "cuMemsetD8Async"
            )

    def tables(self, program: Any, settings: Any) -> tuple[int, int]:
        """Device addresses of a step program and its settings, copied there before the next launch."""
        placed, at = [], self._tables
        for table, kind in ((program, np.int32), (settings, np.uint32)):
            data = np.ascontiguousarray(table, kind).tobytes()
            if at + len(data) > self._tables + TABLES_BYTES:
                raise NeedError("The step program is too long.", "Nothing was launched.", "Use fewer steps.")
            with self._device.current():
                # Pageable source: staged before the call returns, so `data` may go.
                check(
                    driver().cuMemcpyHtoDAsync(at, data, len(data), self.stream.native), "cuMemcpyHtoDAsync"
                )
            placed.append(at)
            at += -(-len(data) // 256) * 256
        return placed[0], placed[1]

    def launch(
        self,
        file: str,
        name: str,
        shape: tuple[int, int],
        args: Sequence[int],
        slot: Slot | None = None,
        cooperative: bool = False,
    ) -> None:
        """Enqueue one kernel and, after it, the slot's event.

        shape: (blocks, threads of a block). args: pointers and integers, each at most 8 bytes; the
        kernel takes as many low bytes of each as its parameter has.
        """
        check_process()
        native = driver()
        function = self.program(file).function(name)
        blocks, threads = shape
        start = native.cuLaunchCooperativeKernel if cooperative else native.cuLaunchKernel
        extra = () if cooperative else (0,)
        with self._lock, self._device.current():
            self._args[: len(args)] = args
            result = start(function, blocks, 1, 1, threads, 1, 1, 0, self.stream.native, self._params, *extra)
            check(result, f"launch of {name}")
            if slot is not None:
                check(native.cuEventRecord(slot.event.native, self.stream.native), "cuEventRecord")


_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()


def _outlive() -> None:
    """A kernel may still run when the interpreter ends; the driver takes the memory with the process."""
    for launcher in list(_launchers):
        launcher.outlive()


atexit.register(_outlive)
