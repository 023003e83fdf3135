"""Existing memory as a region: it works, or the reason is named (contract B5; A05)."""

from __future__ import annotations

import mmap
import tempfile
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import AdoptError, NeedError

FAST = "fast.4k:WA/RA"


def check(memory: Any, region: umsh.Region) -> None:
    """Both sides see the user's own bytes, and what they write is there after unbind."""
    with region.on_cpu(write=True) as a:
        a.reshape(-1)[:] = 7
    umsh.unbind(region)
    assert np.frombuffer(memory, "u1")[0] == 7


@pytest.mark.parametrize("mechanism", [FAST, "copy.4k:copy/copy"])
def test_arrays_maps_and_shared_memory_are_adopted(fake: Any, mechanism: str) -> None:
    array = np.full(4096, 1, "u1")
    region = umsh.bind(memory=array, mechanism=mechanism)
    assert (region.shape, region.dtype) == ((4096,), np.uint8)
    assert (umsh.read(region) == 1).all()
    check(array, region)
    buffer = bytearray(4096)
    check(buffer, umsh.bind(memory=buffer, mechanism=mechanism))
    with mmap.mmap(-1, 4096) as anonymous:
        check(anonymous, umsh.bind(memory=anonymous, mechanism=mechanism))
    shared = SharedMemory(create=True, size=4096)
    try:
        check(shared.buf, umsh.bind(memory=shared, mechanism=mechanism))
    finally:
        shared.close()
        shared.unlink()


def test_file_maps_are_adopted_when_they_may_be_written(fake: Any) -> None:
    """https://github.com/vllm-project/vllm-omni/pull/6240"""
    with tempfile.TemporaryFile() as file:
        file.truncate(8192)
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with mmap.mmap(file.fileno(), 8192, flags=flags) as mapped:
                check(mapped, umsh.bind(memory=mapped, mechanism=FAST))
        frozen = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ)
        with pytest.raises(AdoptError, match="read-only"):
            umsh.bind(memory=frozen, mechanism=FAST)


def test_a_cpu_tensor_is_adopted(fake: Any) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.zeros(3, 5)
    region = umsh.bind(memory=tensor, mechanism=FAST)
    assert (region.shape, region.dtype) == ((3, 5), np.float32)
    umsh.write(region, np.ones((3, 5), "f4"))
    assert float(tensor.sum()) == 15


def test_shape_and_dtype_may_be_given_when_they_fit(fake: Any) -> None:
    buffer = bytearray(64)
    assert umsh.bind((4, 4), "f4", memory=buffer, mechanism=FAST).shape == (4, 4)
    assert umsh.bind(dtype="u2", memory=bytearray(64), mechanism=FAST).shape == (32,)
    with pytest.raises(AdoptError, match="64 bytes"):
        umsh.bind((4, 5), "f4", memory=bytearray(64), mechanism=FAST)


def unaligned() -> Any:
    return np.zeros(41, "u1")[1:].view("f8")


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        (b"bytes", "read-only"),
        (np.zeros((4, 4))[:, ::2], "not contiguous"),
        (np.zeros((4, 4)).T, "not contiguous"),
        (np.zeros(0), "zero bytes"),
        (np.array([object()]), "Python objects"),
        (unaligned(), "not aligned"),
        ([1, 2, 3], "does not share its bytes"),
        ("text", "does not share its bytes"),
        (7, "does not share its bytes"),
        (type("Copies", (), {"__array__": lambda self, dtype=None, copy=None: np.zeros(4)})(), "is a copy"),
    ],
)
def test_memory_that_does_not_qualify_is_refused_with_the_reason(fake: Any, memory: Any, reason: str) -> None:
    with pytest.raises(AdoptError, match=reason):
        umsh.bind(memory=memory, mechanism=FAST)


def test_overlap_with_a_bound_region_is_refused_and_unbind_gives_it_back(fake: Any) -> None:
    """One defined answer: refused, wherever the ranges meet."""
    array = np.zeros(4096, "u1")
    region = umsh.bind(memory=array[1024:2048], mechanism=FAST)
    for part in (array, array[1024:2048], array[2047:], array[:1025], array[1500:1501]):
        with pytest.raises(AdoptError, match="belong to a bound region"):
            umsh.bind(memory=part, mechanism=FAST)
    umsh.bind(memory=array[2048:], mechanism=FAST)
    with region.on_cpu() as a:
        pass
    umsh.unbind(region)
    assert isinstance(a, np.ndarray)  # a closed array's name does not keep the memory taken
    umsh.bind(memory=array[1024:2048], mechanism=FAST)


def test_auto_adopts_by_the_first_guaranteed_kind_that_takes_it(fake: Any) -> None:
    region = umsh.bind(memory=bytearray(64))
    assert region.effective.memory == "copy"
    with pytest.raises(AdoptError, match="Pinned memory is never taken over"):
        umsh.bind(memory=bytearray(64), mechanism="pinned.driver:WA/RA")


def test_adopted_memory_is_kept_alive_and_never_shared(fake: Any) -> None:
    region = umsh.bind(memory=np.full(1 << 16, 3, "u1"), mechanism=FAST)
    noise = [np.full(1 << 16, 9, "u1") for _ in range(20)]
    assert (umsh.read(region) == 3).all()
    assert len(noise) == 20
    with pytest.raises(AdoptError, match="cannot be shared"):
        umsh.bind(memory=bytearray(64), shared=True)
    with pytest.raises(NeedError):
        umsh.bind(memory=bytearray(64), direction="up")


@pytest.mark.parametrize("mechanism", ["system.4k:WA/RA", "auto"])
def test_a_real_kernel_works_on_adopted_memory(device: Any, mechanism: str) -> None:
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    array = np.arange(1024, dtype="f4")
    region = umsh.bind(memory=array, mechanism=mechanism, device="opencl:0")
    kernel = cl.Program(
        device.context, "kernel void add(global float *x) { x[get_global_id(0)] += 1; }"
    ).build()
    queue = cl.CommandQueue(device.context)
    with region.on_gpu(stream=queue) as g:
        kernel.add(queue, (1024,), None, g.arg)
    with region.on_cpu() as a:
        assert a.sum() == np.arange(1024).sum() + 1024
    umsh.unbind(region)
    assert array[0] == 1
