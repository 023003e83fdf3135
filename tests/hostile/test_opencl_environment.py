"""Environments that break OpenCL: each gives one typed error, or works and says so; nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from umsh.backends import open_device
from umsh.errors import DeviceError

SECONDS = 120.0

USE = """
from umsh.backends import open_device
device = open_device("opencl:0")
memory = device.allocate("copy", 1 << 16, "4k")
stream = device.stream()
device.cpu.fill(memory, 0, 1 << 16, 1, "copy").result(30)
memory.upload(0, 1 << 16, stream).wait(30)
print("wrong words", device.gpu.check(memory, 0, 1 << 16, 1, "copy").result(30))
"""


@pytest.fixture(autouse=True)
def _needs_opencl() -> None:
    try:
        open_device("opencl:0")
    except DeviceError as error:
        pytest.skip(f"no OpenCL device: {error}")


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def needs_linker() -> None:
    device = open_device("opencl:0")
    if not device.quirks.linker:  # type: ignore[attr-defined]
        pytest.skip(f"{device.name}: its runtime needs no linker")


def test_without_a_linker_the_error_names_binutils(tmp_path: Path) -> None:
    """PoCL aborts the whole process when it cannot find `ld`; we must look before it does."""
    needs_linker()
    done = python(USE, PATH=str(tmp_path))
    assert done.returncode == 1, done.stderr  # an exception, not a signal
    assert "DeviceError" in done.stderr
    assert "binutils" in done.stderr


def test_a_linker_lost_after_opening_is_the_same_error(tmp_path: Path) -> None:
    needs_linker()
    lose = f"open_device('opencl:0')\nimport os; os.environ['PATH'] = {str(tmp_path)!r}\n"
    done = python(USE.replace('device = open_device("opencl:0")', lose + 'device = open_device("opencl:0")'))
    assert done.returncode == 1, done.stderr
    assert "binutils" in done.stderr


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "POCL_CACHE_DIR"])
def test_an_unwritable_cache_folder_warns_and_works(variable: str) -> None:
    """PoCL then lists no device at all, and pyopencl cannot launch a kernel."""
    needs_linker()
    done = python(USE, **{variable: "/proc/no-folder-here"})
    assert "wrong words 0" in done.stdout, done.stderr
    assert "FallbackWarning" in done.stderr


def test_a_temporary_cache_folder_is_removed(tmp_path: Path) -> None:
    needs_linker()
    done = python(USE, XDG_CACHE_HOME="/proc/no-folder-here", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_process_may_end_while_a_kernel_waits() -> None:
    script = """
from umsh.backends import open_device
device = open_device("opencl:0")
memory = device.allocate("system", 4096, "4k")
lonely = device.gpu.echo(memory, 10, False)
"""
    start = time.monotonic()
    done = python(script)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < SECONDS


def test_an_interrupt_ends_a_wait_at_once() -> None:
    script = """
import sys
import pyopencl as cl
from umsh.backends import open_device
device = open_device("opencl:0")
gate = cl.UserEvent(device.context)
cl.enqueue_barrier(device.stream().native, wait_for=[gate])
event = device.stream().record()
print("waiting", flush=True)
try:
    event.wait(600)
except KeyboardInterrupt:
    gate.set_status(0)
    event.wait(30)
    print("interrupted")
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    told, _ = child.communicate(timeout=SECONDS)
    assert (told, child.returncode) == ("interrupted\n", 0)


def test_allocations_that_fail_leave_nothing_and_later_ones_work() -> None:
    """A clean error before the machine is starved, https://github.com/vllm-project/vllm/issues/54200"""
    script = """
from umsh.backends import open_device
from umsh.errors import OutOfMemory
device = open_device("opencl:0")
def maps(): return len(open("/proc/self/maps").readlines())
device.allocate("system", 1 << 20, "thp").free()
before, (usable, total, _) = maps(), device.memory_info()
for kind in device.memory_kinds():
    if kind.absent:
        continue
    for nbytes in (usable, total, 1 << 45, 1 << 61):
        try:
            device.allocate(kind.name, nbytes, kind.pages[0])
        except OutOfMemory as error:
            assert "Nothing was" in str(error), error
        else:
            raise SystemExit(f"{kind.name} took {nbytes} bytes")
assert maps() <= before + 2, (before, maps())
memory = device.allocate("system", 1 << 20, "thp")
device.gpu.fill(memory, 0, 1 << 20, 1, "WF").result(30)
print("works")
"""
    done = python(script)
    assert done.stdout == "works\n", done.stderr
