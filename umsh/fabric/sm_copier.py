"""Copies by a kernel instead of the copy engine: honours stream priority, and its size caps what it takes."""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

from umsh.errors import DeviceError, NeedError
from umsh.fabric.cuda import CudaBackend

THREADS = 512
BLOCKS = 8
SOURCE = b"""
extern "C" __global__ void copy16(uint4 *dst, const uint4 *src, unsigned long long n) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        dst[i] = src[i];
}
"""


class SmCopier:
    """A copy kernel with at most `blocks` blocks of 512 threads: each occupies at most a multiprocessor.

    It bypasses the copy engine and so the fabric's queue: ask `flow.checkpoint(nbytes)` first. Few blocks
    leave compute alone and take less of the link; docs/fabric.md has what they reach.
    """

    def __init__(self, backend: CudaBackend, device: int = 0, blocks: int = BLOCKS) -> None:
        self.blocks = blocks
        self._backend, self._device = backend, device
        with backend.on(device):
            module = backend.call("cuModuleLoadData", _compile(backend, device))
            self._kernel = backend.call("cuModuleGetFunction", module, b"copy16")

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Enqueue the copy on `stream`; returns at once. Either end may be pinned host memory.

        Raises `NeedError` unless both addresses and `nbytes` are multiples of 16.
        """
        if (dst | src | nbytes) % 16:
            raise NeedError(
                f"{dst:#x}, {src:#x} and {nbytes} bytes are not all multiples of 16.",
                "Nothing was copied.",
                "Align the buffers, or use flow.copy.",
            )
        values = (dst, src, nbytes // 16)
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong)
        with self._backend.on(self._device):
            self._backend.call(
                "cuLaunchKernel",
                self._kernel,
                self.blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                stream,
                (values, types),
                0,
            )


def _compile(backend: CudaBackend, device: int) -> Any:
    """Machine code for the device, by the run-time compiler."""
    nvrtc = import_module("cuda.bindings.nvrtc")
    major = backend.attribute(device, "COMPUTE_CAPABILITY_MAJOR")
    minor = backend.attribute(device, "COMPUTE_CAPABILITY_MINOR")

    def call(name: str, *arguments: Any) -> Any:
        error, *values = getattr(nvrtc, name)(*arguments)
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise DeviceError(
                f"{name} failed with {error}.", "The copy kernel was not built.", "Use flow.copy."
            )
        return values[0] if values else None

    program = call("nvrtcCreateProgram", SOURCE, b"copy16.cu", 0, [], [])
    call("nvrtcCompileProgram", program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()])
    code = bytearray(call("nvrtcGetCUBINSize", program))
    buffer = bytes(code)
    call("nvrtcGetCUBIN", program, buffer)
    return buffer
