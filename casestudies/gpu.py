"""The device of the studies: one dialect of kernels for CUDA and OpenCL, and buffers with copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from umsh.backends import open_device

PLAIN, PINNED = "", ", pinned"  # added to the name of a study's baseline
PRELUDES = {
    "opencl": """
#define KERNEL kernel void
#define GLOBAL global
#define ID(axis) get_global_id(axis)
""",
    "cuda": """
#define KERNEL extern "C" __global__ void
#define GLOBAL
typedef unsigned int uint;
__device__ uint umsh_id(int axis) {
    return axis == 0 ? blockIdx.x * blockDim.x + threadIdx.x : axis == 1 ? blockIdx.y : blockIdx.z;
}
#define ID(axis) umsh_id(axis)
""",
}


class OpenCL:
    """umsh's first OpenCL device: a queue of its context, kernels, and buffers filled by blocking copies."""

    name = "opencl:0"

    def __init__(self, source: str) -> None:
        import pyopencl as cl

        self._cl = cl
        self.device: Any = open_device(self.name)
        self.queue = cl.CommandQueue(self.device.context)
        self._program = cl.Program(self.device.context, PRELUDES["opencl"] + source).build()
        self.buffers: Mapping[str, Callable[..., Buffer]] = {PLAIN: self._buffer}

    def kernel(self, name: str) -> Callable[..., object]:
        """launch(shape, *arguments), in the queue's order."""
        native = self._cl.Kernel(self._program, name)
        return lambda shape, *arguments: native(self.queue, shape, None, *arguments)

    def finish(self) -> None:
        self.queue.finish()

    def _buffer(self, shape: tuple[int, ...]) -> Buffer:
        array = np.zeros(shape, np.float32)
        there = self._cl.Buffer(self.device.context, self._cl.mem_flags.READ_WRITE, array.nbytes)
        flat = array.reshape(-1).view(np.uint8)
        copy = self._cl.enqueue_copy
        return Buffer(
            array, there, lambda: copy(self.queue, there, array), lambda n: copy(self.queue, flat[:n], there)
        )


class Cuda:
    """umsh's first CUDA device through CuPy: a stream, kernels, and device arrays filled by copies."""

    name = "cuda:0"

    def __init__(self, source: str) -> None:
        import cupy

        self._cupy = cupy
        self.device: Any = open_device(self.name)
        self.queue = cupy.cuda.Stream(non_blocking=True)
        self._module = cupy.RawModule(code=PRELUDES["cuda"] + source)
        self.buffers: Mapping[str, Callable[..., Buffer]] = {PLAIN: self._buffer, PINNED: self._pinned}

    def kernel(self, name: str) -> Callable[..., object]:
        """launch(shape, *arguments), in the stream's order."""
        native = self._module.get_function(name)

        def launch(shape: tuple[int, ...], *arguments: Any) -> None:
            threads = shape[0] if shape[0] <= 256 else int(np.gcd(shape[0], 256))
            grid = (shape[0] // threads, *shape[1:])
            sized = tuple(np.uint64(a) if isinstance(a, int) else a for a in arguments)  # addresses
            native(grid, (threads,), sized, stream=self.queue)

        return launch

    def finish(self) -> None:
        self.queue.synchronize()

    def _buffer(self, shape: tuple[int, ...]) -> Buffer:
        """From and to ordinary NumPy memory, as `tensor.to("cuda")` and `.cpu()` copy."""
        return self._copied(np.zeros(shape, np.float32))

    def _pinned(self, shape: tuple[int, ...]) -> Buffer:
        import cupyx

        array = cupyx.empty_pinned(shape, np.float32)
        array[...] = 0
        return self._copied(array)

    def _copied(self, array: np.ndarray) -> Buffer:
        cupy = self._cupy
        there = cupy.zeros(array.nbytes, cupy.uint8)
        flat = array.reshape(-1).view(np.uint8)

        def up() -> None:
            there.set(flat, stream=self.queue)
            self.queue.synchronize()

        def down(nbytes: int | None) -> None:
            there[:nbytes].get(stream=self.queue, out=flat[:nbytes])
            self.queue.synchronize()

        cupy.cuda.Device().synchronize()  # zeros() ran on another stream
        return Buffer(array, there, up, down)


class Buffer:
    """A device buffer and the host array it is copied to or from: the baseline.

    array: float32, the host's. arg: what a kernel takes.
    """

    def __init__(
        self, array: np.ndarray, arg: Any, up: Callable[[], object], down: Callable[[int | None], object]
    ) -> None:
        self.array, self.arg, self._up, self._down = array, arg, up, down
        self.upload()

    def upload(self) -> None:
        """Copy the host array to the device; blocks, as it is filled again next."""
        self._up()

    def download(self, nbytes: int | None = None) -> None:
        """Copy the buffer, or its first nbytes, to the host array; blocks."""
        self._down(nbytes)


def first_gpu(source: str) -> OpenCL | Cuda:
    """The device that umsh opens by default, with the kernels of `source` in the dialect above."""
    return Cuda(source) if open_device(0).driver == "cuda" else OpenCL(source)
