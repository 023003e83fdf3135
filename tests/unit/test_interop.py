"""One region seen by NumPy, PyTorch and pyopencl at once, on the real device and on a made-up CUDA one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umsh

QUEUE_KERNEL = "kernel void triple(global float *x) { x[get_global_id(0)] *= 3; }"
PERSISTENT_KERNEL = """
#include "umsh.clh"
kernel void answer(umsh_word *ask, umsh_word *done, global uint *data, umsh_word *stop, uint rounds) {
    for (uint round = 1; round <= rounds; round++) {
        if (umsh_wait(ask, round, umsh_within(stop, 1ul << 32)) != UMSH_OK) return;
        for (uint i = 0; i < 64; i++) data[i] += round;
        umsh_set(done, round);
    }
}
"""


@pytest.fixture(params=["auto", "svm.driver:WA/RA", "system.4k:WA/RA", "copy.4k:copy/copy"])
def region(request: pytest.FixtureRequest, device: Any) -> umsh.Region:
    return umsh.bind((16, 64), "f4", mechanism=request.param, device="opencl:0")


def build(device: Any, text: str) -> Any:
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    options = ["-cl-std=CL3.0", "-D__opencl_c_atomic_scope_all_devices=1", f"-I{umsh.get_include()}"]
    return cl.Program(device.context, text).build(options=options)


@pytest.mark.parametrize("told", [True, False])
def test_a_plain_pyopencl_kernel_works_on_the_region(region: umsh.Region, told: bool) -> None:
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    queue = cl.CommandQueue(region.device.context)
    kernel = build(region.device, QUEUE_KERNEL).triple
    for value in range(1, 20):
        with region.on_cpu(write=True) as a:
            a[:] = value
        with region.on_gpu(stream=queue if told else None) as g:
            kernel(queue, (g.nbytes // 4,), None, g.arg)
            if not told:
                queue.finish()
        with region.on_cpu() as a:
            assert (a == 3 * value).all()


def test_write_and_read_verbs_meet_a_kernel_in_the_middle(region: umsh.Region) -> None:
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    queue = cl.CommandQueue(region.device.context)
    kernel = build(region.device, QUEUE_KERNEL).triple
    for value in range(1, 20):
        umsh.write(region, np.full((16, 64), value, "f4"), stream=queue)
        with region.on_gpu(stream=queue) as g:
            kernel(queue, (g.nbytes // 4,), None, g.arg)
        assert (umsh.read(region, timeout_s=20) == 3 * value).all()


def test_flags_and_data_reach_a_running_kernel(device: Any) -> None:
    """W2, A2, S1: hand-over while the kernel runs, both directions."""
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    ask, done, stop = (umsh.Flag(device="opencl:0") for _ in range(3))
    data = umsh.bind(64, "u4", boundary="inside", device="opencl:0")
    queue = cl.CommandQueue(device.context)
    rounds = 50
    build(device, PERSISTENT_KERNEL).answer(
        queue, (1,), None, ask.arg, done.arg, data.gpu.arg, stop.arg, np.uint32(rounds)
    )
    queue.flush()
    try:
        for number in range(1, rounds + 1):
            umsh.write(data, np.full(64, 1000 * number, "u4"))
            umsh.set(ask, number)
            umsh.wait(done, number, timeout_s=60)
            assert (umsh.read(data) == 1000 * number + number).all()
    finally:
        stop.set(1)
        queue.finish()


def test_numpy_and_torch_see_the_same_bytes_at_once(device: Any) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    region = umsh.bind((16, 64), "f4", device="opencl:0")
    with region.on_cpu(write=True) as a:
        tensor = torch.from_numpy(a)
        tensor[3] = 5
        assert a[3].sum() == 320
        del tensor
    with region.on_gpu() as g:
        one, other = np.from_dlpack(g), torch.from_dlpack(g)
        assert one[3].sum() == float(other[3].sum()) == 320
        assert one.ctypes.data == other.data_ptr() == g.ptr
        other += 1
        del one, other
    assert umsh.read(region)[3].sum() == 384


@pytest.fixture
def cuda_view(fake: Any) -> Any:
    fake.dlpack_device = (2, 1)
    region = umsh.bind((3, 5), "f4")
    with region.on_gpu() as g:
        yield g


def capsule_name(capsule: Any) -> str:
    return repr(capsule).split('"')[1]


def test_a_cuda_view_speaks_dlpack_by_its_rules(cuda_view: Any) -> None:
    assert cuda_view.__dlpack_device__() == (2, 1)
    assert capsule_name(cuda_view.__dlpack__(stream=1)) == "dltensor"
    versioned = cuda_view.__dlpack__(stream=-1, max_version=(1, 1), dl_device=(2, 1), copy=False)
    assert capsule_name(versioned) == ("dltensor_versioned" if np.__version__ >= "2.1" else "dltensor")
    for refused in ({"stream": 0}, {"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError):
            cuda_view.__dlpack__(**refused)


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (9, 0)])
def test_a_capsule_tells_the_device_and_address(cuda_view: Any, max_version: Any) -> None:
    import ctypes

    capsule = cuda_view.__dlpack__(max_version=max_version)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = capsule_name(capsule)
    start = get(capsule, name.encode()) + (32 if name.endswith("versioned") else 0)
    assert ctypes.c_uint64.from_address(start).value == cuda_view.ptr
    kind, number = (ctypes.c_int32.from_address(start + offset).value for offset in (8, 12))
    assert (kind, number) == (2, 1)


def test_a_consumers_stream_waits_for_the_turns_stream(fake: Any, held_stream: Any) -> None:
    fake.dlpack_device = (2, 0)
    consumer = type(held_stream)()
    region = umsh.bind(8, "u1")
    with region.on_gpu(stream=held_stream) as g:
        capsule = g.__dlpack__(stream=consumer)
        assert held_stream.events[-1] in consumer.waited_for
        del capsule
    held_stream.complete()


def test_the_cuda_array_interface_is_there_for_cuda_memory_only(cuda_view: Any, fake: Any) -> None:
    interface = cuda_view.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((3, 5), "<f4", 3)
    assert interface["data"] == (cuda_view.ptr, False)
    assert interface["stream"] is None
    fake.dlpack_device = (1, 0)
    with umsh.bind(4, "f4") as region, region.on_gpu() as g:
        assert not hasattr(g, "__cuda_array_interface__")


def test_a_dtype_dlpack_does_not_know_is_a_buffer_error(fake: Any) -> None:
    region = umsh.bind(4, [("a", "u1"), ("b", "f4")])
    with region.on_gpu() as g, pytest.raises(BufferError):
        g.__dlpack__()


def test_memory_without_a_device_address_gives_no_dlpack(device: Any) -> None:
    region = umsh.bind(4, "f4", mechanism="copy.4k:copy/copy", device="opencl:0")
    with region.on_gpu() as g, pytest.raises(BufferError, match="only be passed as"):
        g.__dlpack__()


def test_import_loads_no_driver_and_nothing_heavy() -> None:
    heavy = "numba matplotlib pandas msgspec pyopencl rich typer umsh.backends umsh.choice"
    code = f"import sys, umsh; print([m for m in {heavy.split()!r} if m in sys.modules])"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.sep, timeout=60
    )
    assert told.stdout.strip() == "[]"


def test_native_code_finds_umsh_h_where_get_include_says(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on PATH")
    main = "int main(void) { uint32_t f = 0; umsh_set(&f, 1); return (int)umsh_acquire(&f) - 1; }"
    (tmp_path / "user.c").write_text(f'#include "umsh.h"\n{main}\n')
    program = str(tmp_path / "user")
    subprocess.run([compiler, f"-I{umsh.get_include()}", "-o", program, str(tmp_path / "user.c")], check=True)
    assert subprocess.run([program], timeout=60).returncode == 0


def test_memory_info_names_its_source(device: Any) -> None:
    """A02: https://github.com/vllm-project/vllm/issues/48140"""
    info = umsh.memory_info("opencl:0")
    assert 0 < info.usable_bytes <= info.total_bytes
    assert info.source
