"""load_file's regions: made ahead of the readers, within a bound, and given back when one cannot be had."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import OutOfMemory
from umsh.files import load as load_module
from umsh.files import weights as weights_module

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")

# A machine that was not probed says that its shipped choice is passed over.
pytestmark = pytest.mark.filterwarnings("ignore::umsh.errors.FallbackWarning")

ARRAYS = {f"t{n}": np.full(5000, n, np.int32) for n in range(12)}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose tensors get a region each."""
    path = tmp_path / "many.safetensors"
    safetensors_numpy.save_file(ARRAYS, path)
    monkeypatch.setattr(load_module, "REGION_BYTES_MAX", 1)
    monkeypatch.setattr(load_module, "CACHED_REGION_BYTES", 1)
    return path


def test_regions_are_made_ahead_of_the_readers_within_a_bound(
    device: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, ahead = threading.Condition(), [0, 0]  # regions bound and not read, now and at most
    bind, fill = weights_module.bind_bytes, weights_module.fill

    def counting_bind(*args: Any) -> Any:
        region = bind(*args)
        with lock:
            ahead[0] += 1
            ahead[1] = max(ahead)
            lock.notify_all()
        return region

    def late_fill(*args: Any) -> Any:
        with lock:
            assert lock.wait_for(lambda: ahead[1] >= load_module.AHEAD_MAX, timeout=20)
        added = fill(*args)
        with lock:
            ahead[0] -= 1
        return added

    monkeypatch.setattr(weights_module, "bind_bytes", counting_bind)
    monkeypatch.setattr(weights_module, "fill", late_fill)
    with umsh.load_file(path) as loaded:
        assert all(np.array_equal(np.asarray(loaded[name]), array) for name, array in ARRAYS.items())
    assert load_module.READERS < ahead[1] <= load_module.AHEAD_MAX


def test_memory_that_runs_out_half_way_leaves_nothing_bound(
    device: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[weakref.ref[Any]] = []
    bind = weights_module.bind_bytes

    def scarce(nbytes: int, which: int | str) -> Any:
        if len(bound) == 3:
            raise OutOfMemory("No more.", "Nothing was bound.", "")
        region = bind(nbytes, which)
        bound.append(weakref.ref(region))
        return region

    monkeypatch.setattr(weights_module, "bind_bytes", scarce)
    with pytest.raises(OutOfMemory, match="No more"):
        umsh.load_file(path)
    assert len(bound) == 3
    gc.collect()
    assert [region() for region in bound] == [None] * 3
