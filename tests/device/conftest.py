"""Tests that need a CUDA device; each skips with the driver's reason where there is none."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from umsh.backends import open_device
from umsh.backends.cuda.device import CudaDevice
from umsh.errors import DeviceError

CHILD_TIMEOUT_S = 90


@pytest.fixture(scope="session")
def device() -> CudaDevice:
    try:
        opened = open_device("cuda:0")
    except DeviceError as error:
        pytest.skip(f"no CUDA device: {error}")
    assert isinstance(opened, CudaDevice)
    return opened


@pytest.fixture(scope="session")
def numba_cuda(device: CudaDevice) -> Any:
    """numba.cuda that compiles kernels; skips where it is missing, or older than the installed NumPy."""
    module = pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")

    def nothing() -> None: ...

    try:
        module.jit(nothing)[1, 1]()
    except AttributeError as error:  # numpy.row_stack and others are gone from NumPy 2.5
        pytest.skip(f"numba-cuda compiles nothing with NumPy {np.__version__}: {error}")
    return module


@pytest.fixture
def child(device: CudaDevice) -> Callable[[str], str]:
    """Run a program in a process of its own and return what it printed: it may lose its device or die."""

    def run(program: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            timeout=CHILD_TIMEOUT_S,
        )
        return f"rc={ended.returncode}\n{ended.stdout}{ended.stderr}"

    return run


@pytest.fixture
def slow_kernel() -> Callable[..., None]:
    """Launch a kernel on a stream that adds 1 to each word after so many milliseconds."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    kernel = cupy.RawKernel(
        r"""extern "C" __global__ void slow(unsigned int *p, unsigned int n, unsigned long long ns) {
            unsigned long long t, end;
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
            end += ns;
            do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); while (t < end);
            for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) p[i] += 1;
        }""",
        "slow",
    )

    def launch(pointer: int, words: int, milliseconds: int = 200, stream: object = None) -> None:
        arguments = (cupy.uint64(pointer), cupy.uint32(words), cupy.uint64(milliseconds * 1_000_000))
        if stream is None:
            kernel((1,), (256,), arguments)
        else:
            kernel((1,), (256,), arguments, stream=stream)

    return launch
