"""GGUF files: the same names, types, shapes and bytes as the gguf package's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import FileError

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

# A machine that was not probed says that its shipped choice is passed over.
pytestmark = pytest.mark.filterwarnings("ignore::umsh.errors.FallbackWarning")


def write(path: Path, alignment: int = 32, tensors: int = 3) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    writer.add_uint32("some.number", 3)
    writer.add_array("tokens", ["a", "b", "ü"])
    writer.add_array("scores", [1.5, 2.5])
    rng = np.random.default_rng(2)
    for number in range(tensors):
        writer.add_tensor(f"plain.{number}", rng.random((3, 5 + number), dtype=np.float32))
    quantised = gguf.quants.quantize(rng.random((4, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("quantised", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_the_same_as_the_package_reads(device: Any, tmp_path: Path, alignment: int) -> None:
    path = write(tmp_path / "m.gguf", alignment)
    right = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with umsh.load_file(path) as loaded:
        assert set(loaded) == set(right)
        for name, tensor in right.items():
            assert loaded[name].kind.name == tensor.tensor_type.name
            assert np.array_equal(np.asarray(loaded[name]), tensor.data)
        assert loaded.metadata["tokens"] == ("a", "b", "ü")
        assert loaded.metadata["some.number"] == 3


def test_the_magic_tells_without_the_suffix(device: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "blob")
    with umsh.load_file(path) as loaded:
        assert "quantised" in loaded


@pytest.mark.parametrize("name", ["m-00001-of-00000.gguf", "m-00003-of-00002.gguf"])
def test_numbers_that_name_no_split_are_an_ordinary_name(device: Any, tmp_path: Path, name: str) -> None:
    with umsh.load_file(write(tmp_path / name, tensors=1)) as loaded:
        assert set(loaded) == {"plain.0", "quantised"}


def test_splits_load_as_one_and_a_missing_one_is_named(device: Any, tmp_path: Path) -> None:
    first = write(tmp_path / "m-00001-of-00002.gguf", tensors=1)
    with pytest.raises(FileError, match="m-00002-of-00002"):
        umsh.load_file(first)
    writer = gguf.GGUFWriter(tmp_path / "m-00002-of-00002.gguf", "llama")
    writer.add_tensor("second", np.ones(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with umsh.load_file(first) as loaded:
        assert set(loaded) == {"plain.0", "quantised", "second"}
