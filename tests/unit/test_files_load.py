"""load_file: every kind, whole, chosen, lazy, sharded; budget, progress, cancel, checksums."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import umsh
from umsh.errors import Cancelled, FileError, NeedError, OutOfMemory, RegionBusy
from umsh.files import weights as weights_module

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")

# A machine that was not probed says that its shipped choice is passed over.
pytestmark = pytest.mark.filterwarnings("ignore::umsh.errors.FallbackWarning")

ARRAYS = {
    "a.weight": np.arange(6000, dtype=np.float32).reshape(60, 100),
    "b": np.arange(7, dtype=np.int8),
    "scalar": np.array(3.5),
    "leer": np.empty((0, 3), np.int64),
    "größe/重み": np.arange(11, dtype=np.uint16),
    "flags": np.array([True, False, True]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "modèle.safetensors"
    safetensors_numpy.save_file(ARRAYS, path, metadata={"made": "here"})
    return path


def odd(path: Path, pad: int) -> Path:
    """The file with `pad` more spaces in its header, so that its data begin anywhere."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    moved = path.with_name(f"odd-{pad}.safetensors")
    header = data[8 : 8 + length] + b" " * pad
    moved.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    return moved


def drop_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_all_tensors_arrive_with_name_shape_dtype_and_bytes(device: Any, path: Path) -> None:
    with umsh.load_file(path) as loaded:
        assert set(loaded) == set(ARRAYS)
        assert loaded.metadata == {"made": "here"}
        for name, right in ARRAYS.items():
            assert loaded[name].shape == right.shape
            assert loaded[name].dtype == right.dtype
            assert np.array_equal(np.asarray(loaded[name]), right)


@pytest.mark.parametrize("pad", [1, 2, 3, 5, 7, 511])
@pytest.mark.parametrize("cold", [True, False])
def test_a_header_of_odd_length_still_gives_aligned_tensors(
    device: Any, path: Path, pad: int, cold: bool
) -> None:
    moved = odd(path, pad)
    if cold:
        drop_cache(moved)
    with umsh.load_file(moved) as loaded:
        for name, right in ARRAYS.items():
            array = np.asarray(loaded[name])
            assert array.flags.aligned
            assert np.array_equal(array, right)
            del array


def test_dlpack_and_numpy_see_the_same_bytes(device: Any, path: Path) -> None:
    loaded = umsh.load_file(path)
    tensor = loaded["a.weight"]
    assert np.from_dlpack(tensor).ctypes.data == np.asarray(tensor).ctypes.data == tensor.ptr  # type: ignore[arg-type]


def test_arrays_are_read_only(device: Any, path: Path) -> None:
    loaded = umsh.load_file(path)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(loaded["b"])[0] = 1


def test_chosen_tensors_only_take_their_own_bytes(device: Any, tmp_path: Path) -> None:
    path = tmp_path / "two.safetensors"
    safetensors_numpy.save_file({"large": np.zeros(1 << 20, np.uint8), "small": ARRAYS["b"]}, path)
    with umsh.load_file(path, ["small"]) as loaded:
        assert list(loaded) == ["small"]
        assert loaded.nbytes < 64 << 10
        assert np.array_equal(np.asarray(loaded["small"]), ARRAYS["b"])


def test_an_unknown_name_is_refused(device: Any, path: Path) -> None:
    with pytest.raises(NeedError, match="no tensor 'c'"):
        umsh.load_file(path, ["b", "c"])


def test_lazy_reads_at_first_use_and_keeps_to_its_budget(device: Any, path: Path) -> None:
    with umsh.load_file(path, lazy=True, budget=40_000) as loaded:
        assert loaded.nbytes == 0
        assert np.array_equal(np.asarray(loaded["a.weight"]), ARRAYS["a.weight"])
        with pytest.raises(OutOfMemory, match="budget is 40000"):  # noqa: PT012  (one of them is too much)
            for name in ("b", "flags", "scalar", "größe/重み"):
                loaded[name]
        loaded.release("a.weight")
        assert np.array_equal(np.asarray(loaded["b"]), ARRAYS["b"])


def test_a_budget_too_small_binds_nothing(device: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_module, "bind_bytes", lambda *_: pytest.fail("something was bound"))
    with pytest.raises(OutOfMemory, match="budget is 1000"):
        umsh.load_file(path, budget=1000)


def test_more_than_the_machine_has_is_refused_before_binding(device: Any, tmp_path: Path) -> None:
    """A file of many times the memory (a hole on disk): a clean MemoryError (ComfyUI#10896)."""
    path = tmp_path / "hole.bin"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(MemoryError, match="usable here"):
        umsh.load_file(path)


def test_progress_ends_at_all_bytes(device: Any, path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with umsh.load_file(path, progress=lambda done, total: seen.append((done, total))):
        assert seen[-1][0] == seen[-1][1] == sum(a.nbytes for a in ARRAYS.values())


def test_cancel_and_a_failing_callback_stop_the_load(device: Any, path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        umsh.load_file(path, cancel=cancel)

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        umsh.load_file(path, progress=fail)


def test_checksums_are_computed_and_compared(device: Any, path: Path) -> None:
    right = hashlib.sha256(ARRAYS["b"].tobytes()).hexdigest()
    with umsh.load_file(path, checksums=True) as loaded:
        assert loaded.checksums["b"] == right
    with umsh.load_file(path, checksums={"b": right}):
        pass
    with pytest.raises(FileError, match="SHA-256"):
        umsh.load_file(path, checksums={"b": "0" * 64})


def test_close_refuses_while_an_array_lives_and_dropping_is_safe(device: Any, path: Path) -> None:
    loaded = umsh.load_file(path)
    array = np.asarray(loaded["a.weight"])
    with pytest.raises(RegionBusy):
        loaded.close()
    del loaded
    assert np.array_equal(array, ARRAYS["a.weight"])


def test_the_room_for_a_load_is_the_cpu_s_not_a_discrete_device_s(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions lie in CPU memory: a model larger than the card's own memory must load."""
    path = tmp_path / "m.safetensors"
    safetensors_numpy.save_file({"w": ARRAYS["b"]}, path)
    small = umsh.api.MemoryInfo(0, 1 << 30, "device driver")
    monkeypatch.setattr(umsh.api, "memory_info", lambda device=0: small)
    with umsh.load_file(path) as loaded:
        assert np.array_equal(np.asarray(loaded["w"]), ARRAYS["b"])


def test_a_cold_load_leaves_nothing_in_the_page_cache(device: Any, tmp_path: Path) -> None:
    """The page cache must not hold a second copy of the model (ComfyUI#10896, safetensors#758)."""
    path = tmp_path / "cold.safetensors"
    safetensors_numpy.save_file({"w": np.arange(8 << 20, dtype=np.uint8)}, path)
    drop_cache(path)
    from umsh.native import file_resident

    with umsh.load_file(path) as loaded:
        if loaded.report.fallback:
            pytest.skip(f"this file system has no direct reads: {loaded.report.fallback}")
        with path.open("rb") as file:
            assert file_resident(file.fileno(), 0, path.stat().st_size) <= 64 << 10
        assert loaded.report.nbytes_direct == loaded.report.nbytes
        assert loaded.report.nbytes_bounced <= 8192


@pytest.mark.parametrize("keep", [False, True])
def test_a_cached_file_is_not_in_memory_twice_unless_asked(device: Any, tmp_path: Path, keep: bool) -> None:
    """The hot variant of ComfyUI#10896: what was cached is given back once it has been copied."""
    from umsh.native import file_resident

    path = tmp_path / "hot.safetensors"
    data = np.arange(24 << 20, dtype=np.uint8)
    safetensors_numpy.save_file({"a": data[5:], "b": data}, path)
    size = path.stat().st_size
    with path.open("rb") as file:
        os.fsync(file.fileno())
        file.read()
        if file_resident(file.fileno(), 0, size) < size:
            pytest.skip("the file did not stay in the page cache")
        with umsh.load_file(path, keep_cache=keep) as loaded:
            resident = file_resident(file.fileno(), 0, size)
            assert loaded.report.nbytes_cached == loaded.report.nbytes
            assert np.array_equal(np.asarray(loaded["a"]), data[5:])
            assert np.array_equal(np.asarray(loaded["b"]), data)
    # Giving pages back is advice: what a large folio or another CPU's list holds stays, some 100 KiB here.
    assert (resident >= size) if keep else (resident <= size // 100)


def test_shards_of_an_index_load_as_one(device: Any, tmp_path: Path) -> None:
    safetensors_numpy.save_file({"a": ARRAYS["b"]}, tmp_path / "m-1.safetensors")
    safetensors_numpy.save_file({"b": ARRAYS["flags"], "unlisted": ARRAYS["b"]}, tmp_path / "m-2.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}))
    for path in (index, tmp_path):
        with umsh.load_file(path) as loaded:
            assert set(loaded) == {"a", "b"}
            assert np.array_equal(np.asarray(loaded["b"]), ARRAYS["flags"])


def test_a_raw_file_is_one_tensor_of_bytes(device: Any, tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    for nbytes in (0, 1, 511, 4095, 4096, 4097, 3 * 4096 + 123):
        data = os.urandom(nbytes)
        path.write_bytes(data)
        with umsh.load_file(path) as loaded:
            assert np.asarray(loaded["some.bin"]).tobytes() == data


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(st.lists(st.integers(0, 70), max_size=3), min_size=1, max_size=6),
    kinds=st.lists(st.sampled_from(["f4", "f2", "u1", "i8", "c8", "?"]), min_size=6, max_size=6),
    pad=st.integers(0, 9),
)
def test_what_safetensors_wrote_is_what_is_loaded(
    device: Any, tmp_path: Path, shapes: list[list[int]], kinds: list[str], pad: int
) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        f"t{i}": rng.integers(0, 2, shape).astype(kinds[i]) for i, shape in enumerate(shapes)
    }  # fmt: skip
    path = tmp_path / "any.safetensors"
    safetensors_numpy.save_file(arrays, path)
    with umsh.load_file(odd(path, pad)) as loaded:
        assert {n: (t.shape, t.dtype) for n, t in loaded.items()} == {
            n: (a.shape, a.dtype) for n, a in arrays.items()
        }
        assert all(np.array_equal(np.asarray(loaded[n]), a) for n, a in arrays.items())
