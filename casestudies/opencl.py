"""OpenCL for the studies: kernels, the queue, and the buffer with a copy that people use today."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from umsh.backends import open_device


class Host:
    """The first OpenCL device, a queue of its context, and a program's kernels."""

    def __init__(self, source: str) -> None:
        self.device: Any = open_device("opencl:0")
        self.queue = cl.CommandQueue(self.device.context)
        self._program = cl.Program(self.device.context, source).build()

    def kernel(self, name: str) -> Any:
        return cl.Kernel(self._program, name)


class Buffer:
    """A device buffer and the host array it is copied to or from: the baseline."""

    def __init__(self, host: Host, shape: tuple[int, ...], dtype: str = "float32") -> None:
        self.array = np.zeros(shape, dtype)
        self.buffer = cl.Buffer(host.device.context, cl.mem_flags.READ_WRITE, self.array.nbytes)
        self._queue = host.queue
        self.upload()

    def upload(self) -> None:
        """Copy the host array to the device; blocks, as it is filled again next."""
        cl.enqueue_copy(self._queue, self.buffer, self.array)

    def download(self, nbytes: int | None = None) -> None:
        """Copy the buffer, or its first nbytes, to the host array; blocks."""
        flat = self.array.reshape(-1).view(np.uint8)
        cl.enqueue_copy(self._queue, flat[:nbytes], self.buffer)
