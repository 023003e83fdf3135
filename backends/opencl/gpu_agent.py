"""The GPU agent: kernels of work.cl launched on a queue of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from umsh.backends.driver import Agent, Memory, Pending, StepRun
from umsh.backends.opencl.runtime import calling, check_process
from umsh.backends.opencl.stream import wait_event
from umsh.errors import UnsupportedError

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice

T = TypeVar("T")
HERE = Path(__file__).parent
WRITES = {"WA": 0, "WF": 1, "WBp": 2}
READS = {"RA": 0, "RI": 1, "RB": 2}
SPAN_CPU, LOCAL_GPU = 4096, 256


class OpenCLPending(Pending[T]):
    """One launched kernel."""

    def __init__(self, event: Any, read: Any) -> None:
        self._event = event
        self._read = read

    def result(self, timeout_s: float) -> T:
        wait_event(self._event, timeout_s)
        value: T = self._read()
        return value


class OpenCLAgent(Agent):
    """Work done by kernels on the device."""

    kind = "gpu"

    def __init__(self, device: OpenCLDevice) -> None:
        import pyopencl as cl

        self._device = device
        with calling("clCreateCommandQueue"):
            self._queue = cl.CommandQueue(device.context, device.native)
        self._lock = threading.Lock()
        self._program: Any = None

    def methods(self) -> Mapping[str, str]:
        return dict.fromkeys((*WRITES, *READS, "copy"), "")

    def fill(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[None]:
        import numpy as np

        size, span = self._shape(nbytes // 4)
        args = (memory.kernel_arg, np.uint64(offset // 4), np.uint64(nbytes // 4), np.uint32(seed),
                np.uint32(span), np.int32(WRITES[method]))  # fmt: skip
        return OpenCLPending(self._launch("umsh_fill", args, size), lambda: None)

    def check(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[int]:
        import numpy as np

        bad = self._device.allocate("svm", 128, "driver")
        size, span = self._shape(nbytes // 4)
        args = (memory.kernel_arg, np.uint64(offset // 4), np.uint64(nbytes // 4), np.uint32(seed),
                np.uint32(span), np.int32(READS[method]), bad.kernel_arg)  # fmt: skip
        event = self._launch("umsh_check", args, size)
        from umsh.backends.pages import view

        return OpenCLPending(event, lambda: (bad, int(view(bad.address, 4).view("u4")[0]))[1])

    def gather(self, memory: Memory, count: int, seed: int, stride: int, method: str) -> Pending[int]:
        raise UnsupportedError("gather is not built yet.")

    def steps(self, run: StepRun) -> Pending[int]:
        raise UnsupportedError("steps is not built yet.")

    def echo(self, words: Memory, rounds: int, first: bool) -> Pending[int]:
        raise UnsupportedError("echo is not built yet.")

    def lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        raise UnsupportedError("lock_rounds is not built yet.")

    def poll(self, words: Memory, level: str, threads: int, rounds: int) -> Pending[int]:
        raise UnsupportedError("poll is not built yet.")

    def pollers_max(self, level: str) -> int:
        return 1

    def _shape(self, count: int) -> tuple[int, int]:
        """(work-items, words each takes at a time): few and contiguous on a CPU, many and adjacent on a GPU."""
        return max(1, -(-count // SPAN_CPU)), SPAN_CPU

    def _launch(self, name: str, args: tuple[Any, ...], items: int) -> Any:
        import pyopencl as cl

        check_process()
        with self._lock, calling(name):
            if self._program is None:
                source = (HERE / "work.cl").read_text()
                options = ["-cl-std=CL3.0", *self._device.quirks.build_options]
                self._program = cl.Program(self._device.context, source).build(options)
            kernel = cl.Kernel(self._program, name)
            event = kernel(self._queue, (items,), (1,), *args)
            self._queue.flush()
            return event
