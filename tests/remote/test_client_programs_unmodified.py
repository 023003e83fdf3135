"""Programs that know nothing of umsh find a device: Python packages that load libcuda.so.1 by name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import pytest

from umsh.remote.run import environment

NUMBA = """
import numpy as np
from numba import cuda

assert [d.name for d in cuda.list_devices()] == [b"loopback"]
a = np.arange(100_000, dtype=np.float32)
assert (cuda.to_device(a).copy_to_host() == a).all()
stream, source, to = cuda.stream(), cuda.pinned_array(1000, np.float32), cuda.pinned_array(1000, np.float32)
source[:] = 3
cuda.to_device(source, stream=stream).copy_to_host(to, stream=stream)
stream.synchronize()
assert (to == 3).all()
first, last = cuda.event(), cuda.event()
first.record(stream); last.record(stream); last.synchronize()
assert cuda.event_elapsed_time(first, last) >= 0
assert cuda.current_context().get_memory_info().total == 1 << 30
mapped = cuda.mapped_array(10, np.float32)
mapped[:] = 1
"""

BINDINGS = """
from cuda.bindings import driver

def ok(results):
    assert results[0] == 0, results
    return results[1] if len(results) == 2 else results[1:]

ok(driver.cuInit(0))
context = ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))
ok(driver.cuCtxSetCurrent(context))
address, to = ok(driver.cuMemAlloc(100)), bytearray(100)
ok(driver.cuMemcpyHtoD(address, b"x" * 100, 100))
ok(driver.cuMemcpyDtoH(to, address, 100))
assert bytes(to) == b"x" * 100
ok(driver.cuStreamSynchronize(ok(driver.cuStreamCreate(0))))
ok(driver.cuMemFree(address))
"""


@pytest.mark.parametrize(("package", "program"), [("numba", NUMBA), ("cuda.bindings", BINDINGS)])
@pytest.mark.parametrize("mode", ["full", "naive"])
def test_a_package_finds_the_remote_device(loopback: Any, package: str, program: str, mode: str) -> None:
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    env = environment(os.environ, f"127.0.0.1:{loopback.port}", mode=mode, libraries=loopback.library.parent)
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
