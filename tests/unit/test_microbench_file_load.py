"""The file benchmark's rows: both mmap baselines give the file's bytes, each under its own label."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from umsh.microbench import file_load


@pytest.mark.parametrize("subject", file_load.BENCHMARK.baselines)
def test_a_baseline_gives_the_files_bytes(subject: str, tmp_path: Path) -> None:
    path, content = tmp_path / "file", bytes(range(256)) * 4096
    path.write_bytes(content)
    held: list[object] = []
    address, note = file_load.WAYS[subject](path, len(content), held)
    assert note == ""
    assert ctypes.string_at(address, len(content)) == content


def test_the_disk_alone_reads_every_piece(tmp_path: Path) -> None:
    nbytes = file_load.PIECE + 4096
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (nbytes // 256))
    held: list[object] = []
    address, _ = file_load.WAYS[file_load.DISK](path, nbytes, held)
    assert file_load._last_piece_is_right(path, nbytes, address)
    ctypes.memset(address + 4000, 0, 96)
    assert not file_load._last_piece_is_right(path, nbytes, address)
