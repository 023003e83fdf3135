"""Launches of umsh's own kernels: result slots, the abort word, and pending results."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from umsh.backends.cuda.calls import check, check_process, driver
from umsh.backends.cuda.memory import allocate_host
from umsh.backends.cuda.program import Program
from umsh.backends.cuda.stream import CudaEvent, CudaStream, still_running
from umsh.backends.driver import Pending
from umsh.errors import NeedError

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

U32, U64, I32, POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_void_p


class Slot:
    """Where one launch leaves its result: `host` a 64-bit word the CPU reads, `device` zeroed scratch."""

    def __init__(self, host: int, device_view: int, scratch: int) -> None:
        self.host = host
        self.device_view = device_view
        self.scratch = scratch
        self.event: CudaEvent | None = None

    @property
    def value(self) -> int:
        return ctypes.c_uint64.from_address(self.host).value


class KernelPending(Pending[T], Generic[T]):
    """Work on a stream; `read` gives its result once the event has passed."""

    def __init__(self, event: CudaEvent, read: Callable[[], T]) -> None:
        self._event = event
        self._read = read

    def result(self, timeout_s: float) -> T:
        self._event.wait(timeout_s)
        return self._read()


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
        self._slots = [Slot(address + at, pointer + at, int(scratch) + at) for at in spaced]
        self._next = 0
        self._abort = address + SLOTS * SLOT_BYTES
        self.abort = pointer + SLOTS * SLOT_BYTES
        self._programs: dict[str, Program] = {}

    def program(self, file: str) -> Program:
        if file not in self._programs:
            with self._device.current():
                self._programs[file] = Program(file, self._device.capability)
        return self._programs[file]

    def stop_all(self) -> None:
        """Make every wait inside running kernels of ours end; they report the rounds they completed."""
        ctypes.c_uint32.from_address(self._abort).value = 1

    def slot(self) -> Slot:
        """The next result slot, its word zeroed; waits for a launch that still uses it."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % SLOTS
        if slot.event is not None:
            slot.event.wait(RESULT_TIMEOUT_S)
        ctypes.c_uint64.from_address(slot.host).value = 0
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
        args: Sequence[tuple[Any, Any]],
        cooperative: bool = False,
    ) -> None:
        """Enqueue one kernel; shape is (blocks, threads of a block), args are (value, ctype)."""
        check_process()
        native = driver()
        function = self.program(file).function(name)
        packed = (tuple(value for value, _ in args), tuple(kind for _, kind in args))
        blocks, threads = shape
        start = native.cuLaunchCooperativeKernel if cooperative else native.cuLaunchKernel
        extra = () if cooperative else (0,)
        with self._device.current():
            result = start(function, blocks, 1, 1, threads, 1, 1, 0, self.stream.native, packed, *extra)
        check(result, f"launch of {name}")

    def pending(self, slot: Slot, read: Callable[[int], T]) -> KernelPending[T]:
        """The result of what was launched last, read from its slot."""
        slot.event = event = self.stream.record()
        return KernelPending(event, lambda: read(slot.value))
