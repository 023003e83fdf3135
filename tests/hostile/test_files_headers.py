"""Hostile and damaged weight files: always a typed error, quickly, with nothing left bound."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import umsh
from umsh.errors import FileError
from umsh.files import reading
from umsh.files.load import open_file

# A machine that was not probed says that its shipped choice is passed over.
pytestmark = pytest.mark.filterwarnings("ignore::umsh.errors.FallbackWarning")

SCRATCH = [HealthCheck.function_scoped_fixture]
W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def write(path: Path, header: Any, data: bytes = bytes(8), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def refuse(path: Path, match: str | None = None) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileError, match=match):
        umsh.load_file(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"", "JSON"),
        (b"[]", "JSON"),
        (b'{"w"', "JSON"),
        (b"\xff\xfe{}", "JSON"),
        (b'{"w":' * 20000, "JSON"),
        (b'{"w": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}, "w": 1}', "twice"),
        (b'{"w": {"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}}', "twice"),
        ({"w": 1}, "lacks"),
        ({"w": {**W, "data_offsets": [0, 8, 9]}}, "lacks"),
        ({"w": {"dtype": "F32", "shape": [2]}}, "lacks"),
        ({"w": {**W, "dtype": "F31"}}, "unknown dtype"),
        ({"w": {**W, "dtype": ["F32"]}}, "unknown dtype"),
        ({"w": {**W, "shape": [-2]}}, "whole numbers"),
        ({"w": {**W, "shape": [2.0]}}, "whole numbers"),
        ({"w": {**W, "shape": [True, 2]}}, "whole numbers"),
        ({"w": {**W, "shape": [1 << 62, 1 << 62]}}, "larger than the file"),
        ({"w": {**W, "shape": [1] * 100}}, "dimensions"),
        ({"w": {**W, "shape": [3]}}, "is given 8 bytes"),
        ({"w": {**W, "data_offsets": [8, 0]}}, "bytes 8 to 0"),
        ({"w": {**W, "data_offsets": [0, 1 << 60]}}, "bytes 0 to"),
        ({"w": {**W, "shape": [1], "data_offsets": [4, 8]}}, "cover"),
        ({"w": W, "v": {**W, "shape": [1], "data_offsets": [4, 8]}}, "overlap"),
        ({"w": W, "v": W}, "overlap"),
        ({"__metadata__": {"a": 1}, "w": W}, "metadata"),
        ({"__metadata__": [], "w": {**W, "shape": [1], "data_offsets": [0, 4]}}, "cover"),
    ],
)
def test_a_header_the_format_forbids_is_refused(tmp_path: Path, header: Any, match: str) -> None:
    refuse(write(tmp_path / "x.safetensors", header), match)


@pytest.mark.parametrize("length", [0, 1, (1 << 64) - 1, 1 << 63, 100_000_001, 500])
def test_a_header_length_that_cannot_be_is_refused(tmp_path: Path, length: int) -> None:
    refuse(write(tmp_path / "x.safetensors", {"w": W}, length=length))


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "x.safetensors", {"w": W}).read_bytes()
    for nbytes in range(len(whole)):
        path = tmp_path / "cut.safetensors"
        path.write_bytes(whole[:nbytes])
        refuse(path)
    path.write_bytes(whole + b"x")
    refuse(path, "cover")


@settings(max_examples=300, deadline=None, suppress_health_check=SCRATCH)
@given(data=st.data())
def test_nothing_is_taken_that_the_safetensors_package_refuses(tmp_path: Path, data: st.DataObject) -> None:
    """Random damage to a good header: where we read it, so does the package, to the same tensors."""
    package = pytest.importorskip("safetensors", reason="safetensors is not installed")
    text = bytearray(json.dumps({"w": W, "v": {**W, "data_offsets": [8, 16]}}).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(
            st.sampled_from(b'0123456789"{}[],:-FIUvw ')
        )
    path = write(tmp_path / "x.safetensors", bytes(text), bytes(range(16)))
    try:
        source, header = open_file(path, None)
    except FileError:
        return
    source.close()
    with package.safe_open(path, "numpy") as file:
        assert set(file.keys()) == {entry.name for entry in header.entries}
        for entry in header.entries:
            part = file.get_slice(entry.name)
            assert (part.get_dtype(), tuple(part.get_shape())) == (entry.kind.name, entry.shape)


def good_gguf() -> bytes:
    key = b"general.architecture"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    head += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, 1) + b"x"
    head += struct.pack("<Q", 1) + b"w" + struct.pack("<IQIQ", 1, 2, 0, 0)
    return head + bytes(-len(head) % 32) + bytes(8)


def test_a_gguf_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole, path = good_gguf(), tmp_path / "x.gguf"
    path.write_bytes(whole)
    with umsh.load_file(path) as loaded:
        assert np.asarray(loaded["w"]).tolist() == [0, 0]
    for nbytes in range(len(whole)):
        path.write_bytes(whole[:nbytes])
        refuse(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("at", range(4, len(good_gguf()) - 8))
def test_a_gguf_with_any_field_blown_up_ends_quickly(tmp_path: Path, at: int) -> None:
    """An array length of 2^64 makes a reader that trusts it loop without end."""
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    data = bytearray(good_gguf())
    data[at] = 0xFF
    path = tmp_path / "x.gguf"
    path.write_bytes(bytes(data))
    with contextlib.suppress(FileError):
        umsh.load_file(path).close()


def test_a_gguf_array_of_endless_length_is_refused(tmp_path: Path) -> None:
    for kind, count in ((0, 1 << 63), (4, (1 << 64) - 1), (8, 1 << 40), (9, 1 << 40), (9, 1)):
        nested = struct.pack("<IIQ", 9, kind, count) + struct.pack("<IQ", 9, 1) * 50
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + nested
        path = tmp_path / "x.gguf"
        path.write_bytes(head + bytes(64))
        refuse(path)


@settings(max_examples=300, deadline=None, suppress_health_check=SCRATCH)
@given(data=st.data())
def test_damaged_gguf_is_read_or_refused_never_worse(tmp_path: Path, data: st.DataObject) -> None:
    text = bytearray(good_gguf())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "x.gguf"
    path.write_bytes(bytes(text))
    try:
        source, header = open_file(path, "gguf")
    except FileError:
        return
    source.close()
    assert all(e.offset >= 0 and e.offset + e.nbytes <= len(text) for e in header.entries)


@pytest.mark.parametrize(
    "index",
    ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"w": "../x.safetensors"}}',
     '{"weight_map": {"w": "/etc/passwd"}}', '{"weight_map": {"w": ".."}}', '{"weight_map": {"w": ""}}',
     '{"weight_map": {"w": "gone.safetensors"}}', '{"weight_map": {"absent": "x.safetensors"}}'],
)  # fmt: skip
def test_a_hostile_index_is_refused(device: Any, tmp_path: Path, index: str) -> None:
    write(tmp_path / "x.safetensors", {"w": W})
    path = tmp_path / "m.safetensors.index.json"
    path.write_text(index)
    refuse(path)


def test_a_file_changed_while_it_is_loaded_is_refused(device: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.safetensors", {"w": W})

    def touch(done: int, total: int) -> None:
        os.utime(path, ns=(1, 1))

    with pytest.raises(FileError, match="changed"):
        umsh.load_file(path, progress=touch)
    lazy = umsh.load_file(path, lazy=True)
    os.truncate(path, 20)
    with pytest.raises(FileError, match="changed"):
        lazy["w"]


def test_a_file_system_without_direct_reads_works_and_says_so(device: Any, tmp_path: Path) -> None:
    """Network and memory file systems refuse O_DIRECT (llama.cpp#18766): read buffered, and told."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        pytest.skip("/dev/shm cannot be written")
    path = write(shm / f"umsh-test-{os.getpid()}.safetensors", {"w": W}, struct.pack("<2f", 1, 2))
    try:
        with umsh.load_file(path) as loaded:
            assert np.asarray(loaded["w"]).tolist() == [1, 2]
            assert loaded.report.nbytes_direct == 0
    finally:
        path.unlink()


def test_a_read_only_file_on_which_mincore_tells_nothing(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.safetensors", {"w": W}, struct.pack("<2f", 1, 2))
    path.chmod(0o444)
    monkeypatch.setattr(reading.os, "geteuid", lambda: -1)
    monkeypatch.setattr(reading.os, "access", lambda *_: False)
    with umsh.load_file(path) as loaded:
        assert np.asarray(loaded["w"]).tolist() == [1, 2]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        umsh.load_file(tmp_path / "absent.safetensors")
    refuse(tmp_path, "holds no")
