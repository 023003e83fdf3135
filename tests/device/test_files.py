"""Loaded files on the GPU: PyTorch, CuPy, numba-cuda and JAX read the bytes where load_file put them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.backends.cuda.device import CudaDevice

WORDS = 100_003
EXPECTED = np.arange(WORDS, dtype=np.float32)


@pytest.fixture
def weights(device: CudaDevice, tmp_path: Path) -> Any:
    save = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    save.save_file({"first": EXPECTED, "second": EXPECTED[::-1].copy()}, tmp_path / "model.safetensors")
    return umsh.load_file(tmp_path / "model.safetensors", device="cuda:0")


def test_torch_reads_in_place(weights: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for name, expected in (("first", EXPECTED), ("second", EXPECTED[::-1])):
        tensor = torch.from_dlpack(weights[name])
        assert tensor.is_cuda
        assert tensor.data_ptr() == weights[name].ptr
        assert (tensor.cpu().numpy() == expected).all()


def test_the_drop_in_gives_cuda_tensors(weights: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from umsh.files.torch import load_file

    tensors = load_file(tmp_path / "model.safetensors", device="cuda")
    assert tensors["first"].is_cuda
    assert (tensors["first"].cpu().numpy() == EXPECTED).all()


def test_cupy_reads_in_place(weights: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for array in (cupy.asarray(weights["first"]), cupy.from_dlpack(weights["first"])):
        assert array.data.ptr == weights["first"].ptr
        assert (cupy.asnumpy(array) == EXPECTED).all()


def test_numba_reads_in_place(weights: Any) -> None:
    cuda = pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
    array = cuda.as_cuda_array(weights["first"])
    assert array.device_ctypes_pointer.value == weights["first"].ptr
    assert (array.copy_to_host() == EXPECTED).all()


def test_jax_reads_what_lies_aligned_in_place(device: CudaDevice, tmp_path: Path) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    path = tmp_path / "raw.bin"
    path.write_bytes(EXPECTED.tobytes())
    loaded = umsh.load_file(path, device="cuda:0", format="raw")
    (tensor,) = loaded.values()
    array = jax.dlpack.from_dlpack(tensor)
    assert array.unsafe_buffer_pointer() == tensor.ptr
    assert (np.asarray(array).view(np.float32) == EXPECTED).all()


def test_tensors_outlive_the_mapping(weights: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    loaded = umsh.load_file(tmp_path / "model.safetensors", device="cuda:0")
    tensor = torch.from_dlpack(loaded["first"])
    del loaded
    assert float(tensor[-1]) == WORDS - 1
