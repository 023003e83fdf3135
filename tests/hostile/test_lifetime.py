"""Memory outlives its arrays, is freed once, and never under running work (contract B6, B7; A04, A10)."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import RegionBusy, UmshWarning, WaitTimeout


def test_views_outlive_the_region_in_any_order(fake: Any) -> None:
    """A10: https://github.com/numpy/numpy/issues/18294"""
    region = umsh.bind(64, "u1")
    with region.on_cpu(write=True) as a:
        a[:] = 5
        kept: list[Any] = [a[3:], a.view("u8"), memoryview(a)]
    del region, a
    gc.collect()
    assert not fake.freed
    assert kept[0].sum() == 61 * 5
    while kept:
        assert len(fake.freed) == 0
        kept.pop()
    assert len(fake.freed) == 1
    assert fake.freed[0].freed == 1


def test_a_tensor_the_count_misses_keeps_the_memory(fake: Any) -> None:
    """The known hole: no name of the array is left at the end of the block."""
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    region = umsh.bind(64, "u1")
    with region.on_cpu(write=True) as a:
        tensor = torch.from_numpy(a)
        del a
    umsh.unbind(region)
    assert not fake.freed
    tensor.fill_(1)
    assert int(tensor.sum()) == 64
    del tensor
    assert len(fake.freed) == 1


def test_a_name_of_a_closed_array_keeps_pages_but_unbind_succeeds(fake: Any) -> None:
    region = umsh.bind(64, "u1")
    with region.on_cpu() as a:
        pass
    umsh.unbind(region)
    assert not fake.freed
    del a
    assert len(fake.freed) == 1


def test_a_dlpack_capsule_keeps_the_memory_and_frees_it_once_on_any_thread(fake: Any) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    region = umsh.bind(64, "u1")
    with region.on_gpu() as g:
        capsule, box = g.__dlpack__(), [torch.from_dlpack(g)]
    with pytest.raises(RegionBusy):
        umsh.unbind(region)
    del region, g
    assert not fake.freed
    del capsule  # never consumed: its own destructor runs
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join(20)
    assert len(fake.freed) == 1


def test_dropping_a_region_waits_for_its_work(fake: Any, held_stream: Any) -> None:
    """A04: https://github.com/ml-explore/mlx/issues/3645"""
    region = umsh.bind(64, "u1")
    order: list[str] = []
    with region.on_gpu(stream=held_stream):
        pass
    held_stream.events[-1].wait = lambda timeout_s: order.append(f"waited, freed {len(fake.freed)}")
    del region
    assert order == ["waited, freed 0"]
    assert len(fake.freed) == 1


def test_work_that_never_ends_keeps_its_memory_and_warns(fake: Any, held_stream: Any) -> None:
    region = umsh.bind(64, "u1")
    with region.on_gpu(stream=held_stream):
        pass
    with pytest.raises(WaitTimeout):
        umsh.unbind(region, timeout_s=0)
    with pytest.warns(UmshWarning, match="kept until this process ends"):
        del region
    assert not fake.freed


def test_a_gpu_turn_never_ended_is_waited_for(fake: Any, held_stream: Any) -> None:
    region = umsh.bind(64, "u1")
    turn = region.on_gpu(stream=held_stream)
    turn.__enter__()
    with pytest.raises(RegionBusy):
        umsh.unbind(region)
    with pytest.warns(UmshWarning, match="kept until"):
        del region, turn
    assert not fake.freed


def test_the_cpu_cannot_look_while_a_real_kernel_writes(device: Any) -> None:
    """A04: read, write, unbind and drop during a kernel wait or raise; never old data, never a signal."""
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    text = """kernel void slow(global uint *x, uint turns) {
        uint v = 1;
        for (uint i = 0; i < turns; i++) { v = v * 1664525u + 1013904223u; x[i % 64] = v; }
        for (uint i = 0; i < 64; i++) x[i] = 7;
    }"""
    kernel = cl.Program(device.context, text).build().slow
    queue = cl.CommandQueue(device.context)

    def launch() -> umsh.Region:
        region = umsh.bind(64, "u4", device="opencl:0")
        with region.on_gpu(stream=queue) as g:
            kernel(queue, (1,), None, g.arg, np.uint32(60_000_000))
            queue.flush()
        return region

    assert (umsh.read(launch()) == 7).all()
    region = launch()
    other = umsh.bind(64, "u4", device="opencl:0")
    umsh.write(other, np.ones(64, "u4"))  # a region the kernel does not use is free meanwhile
    umsh.write(region, np.full(64, 9, "u4"))
    assert (umsh.read(region) == 9).all()
    umsh.unbind(launch())
    del region
    region = launch()
    del region  # dropped while the kernel runs: freed after it
    fresh = umsh.bind(64, "u4", device="opencl:0")
    queue.finish()
    assert not umsh.read(fresh).any()


def test_a_thousand_regions_leave_no_mappings_and_no_memory(device: Any) -> None:
    """A10: after the last view goes, the memory is really released."""

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def rounds(count: int) -> None:
        for index in range(count):
            region = umsh.bind(1 << 20, "u1", device="opencl:0", mechanism="system.4k:WA/RA")
            with region.on_cpu(write=True) as a:
                a[::4096] = index % 256

    rounds(20)
    maps, before = _maps(), resident()
    rounds(1000)
    assert _maps() <= maps + 5
    assert resident() <= before + (32 << 20)


def _maps() -> int:
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "import os; os.kill(os.getpid(), 2)"])
def test_the_interpreter_exits_cleanly_with_live_views(device: Any, ending: str) -> None:
    code = f"""
import umsh, numpy as np
region = umsh.bind(4096, "f4", device="opencl:0")
flag = umsh.Flag(device="opencl:0")
turn = region.on_cpu(write=True); a = turn.__enter__(); view = a[3:]; m = memoryview(a)
inside = umsh.bind(64, "u4", boundary="inside", device="opencl:0"); word = inside.word(3); g = inside.gpu
try:
    {ending}
except KeyboardInterrupt:
    pass
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("mechanism", ["svm.driver:WA/RA", "system.4k:WA/RA", "copy.4k:copy/copy"])
def test_the_interpreter_exits_cleanly_under_a_running_kernel(device: Any, mechanism: str) -> None:
    """B7: the kernel goes on reading and writing after the last line of the program."""
    code = f"""
import numpy as np, pyopencl as cl, umsh
region = umsh.bind(1 << 20, "u1", device="opencl:0", mechanism={mechanism!r})
source = "kernel void spin(global volatile uint *p) {{ for (int i = 0; i < 1 << 28; i++) p[i % 99] += 1; }}"
spin = cl.Kernel(cl.Program(region.device.context, source).build(), "spin")
queue = cl.CommandQueue(region.device.context)
with region.on_gpu(stream=queue) as g:
    spin(queue, (1,), (1,), g.arg)
    queue.flush()
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("wait", ["umsh.wait(umsh.Flag(), 1)", "lock.lock()"])
def test_an_interrupt_ends_a_wait_for_a_flag_or_lock(wait: str) -> None:
    """Ctrl-C is taken within a slice of the wait, long before its timeout of a minute."""
    code = (
        "import threading, umsh\n"
        "lock = umsh.Lock()\n"
        "taken = threading.Event()\n"
        "def hold():\n"
        "    lock.lock(); taken.set(); threading.Event().wait(50)\n"
        "threading.Thread(target=hold, daemon=True).start()\n"
        "taken.wait()\n"
        "print('waiting', flush=True)\n"
        f"try:\n    {wait}\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=20)[0] == "interrupted\n"
    finally:
        child.kill()
