"""Streaming: every byte once, in order, within the ring's memory, and errors told to the consumer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umsh.errors import FileError, NeedError, OutOfMemory, RegionBusy
from umsh.files import stream_file

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")

# A machine that was not probed says that its shipped choice is passed over.
pytestmark = pytest.mark.filterwarnings("ignore::umsh.errors.FallbackWarning")
PIECE = 1 << 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "raw.bin"
    path.write_bytes(os.urandom(10 * PIECE + 123))
    return path


def test_a_raw_file_arrives_in_order_through_a_ring_smaller_than_it(device: Any, path: Path) -> None:
    got = b""
    regions = set()
    for piece in stream_file(path, PIECE, depth=3, budget=3 * (PIECE + 8192)):
        regions.add(id(piece.region))
        got += b"".join(np.asarray(tensor).tobytes() for tensor in piece.values())
    assert got == path.read_bytes()
    assert len(regions) == 3


def test_tensors_stay_whole(device: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    arrays = {f"layer.{n}": np.full((n + 1, 1000), n, np.float32) for n in range(12)}
    safetensors_numpy.save_file(arrays, path)
    seen = {}
    for piece in stream_file(path, PIECE):
        seen |= {name: np.array(tensor) for name, tensor in piece.items()}
    assert seen.keys() == arrays.keys()
    assert all(np.array_equal(seen[name], right) for name, right in arrays.items())


def test_a_slow_consumer_holds_the_reader_back(device: Any, path: Path) -> None:
    read: list[int] = []
    with stream_file(path, PIECE, depth=2, progress=lambda done, total: read.append(done)) as pieces:
        first = next(iter(pieces))
        assert len(first) == 1
        assert len(read) <= 2


def test_an_array_kept_from_an_old_piece_ends_the_stream(device: Any, path: Path) -> None:
    with pytest.raises(RegionBusy):  # noqa: PT012  (the error comes at a later step)
        kept = []
        for piece in stream_file(path, PIECE, depth=2):
            with piece.region.on_cpu() as array:
                kept.append(array[:1])


def test_a_consumer_that_stops_leaves_no_thread(device: Any, path: Path) -> None:
    pieces = stream_file(path, PIECE)
    for _ in pieces:
        break
    pieces.close()
    assert not pieces._thread.is_alive()


def test_a_file_cut_while_it_streams_is_told(device: Any, path: Path) -> None:
    with pytest.raises(FileError):  # noqa: PT012
        for _ in stream_file(path, PIECE, depth=2):
            os.truncate(path, PIECE)


def test_bad_arguments(device: Any, path: Path) -> None:
    with pytest.raises(NeedError):
        stream_file(path, depth=1)
    with pytest.raises(OutOfMemory):
        stream_file(path, PIECE, budget=PIECE)
