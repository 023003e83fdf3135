"""Bad input to bind and its verbs: one typed error each, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import DeviceError, NeedError, OutOfMemory, TurnError, UmshError, UnsupportedError


@pytest.mark.parametrize(
    "shape",
    [0, (3, 0), -1, (-2, -3), (), 1 << 62, (1 << 40, 1 << 40), 1.5, "8", (2, "2"), None, [[1]], (None,)],
)
def test_shapes(fake: Any, shape: Any) -> None:
    if shape == ():
        assert umsh.bind(shape, "f4").nbytes == 4  # one element, as in NumPy
        return
    with pytest.raises(NeedError):
        umsh.bind(shape, "f4")
    assert not fake.freed


@pytest.mark.parametrize("dtype", ["float33", "O", object, [("a", "O")], "S0", "V", 12, None])
def test_dtypes(fake: Any, dtype: Any) -> None:
    with pytest.raises(NeedError):
        umsh.bind(8, dtype)


@pytest.mark.parametrize(
    "need",
    [
        {"direction": "gpu"}, {"direction": None}, {"source": "disk"}, {"boundary": "grid"}, {"passes": 0},
        {"passes": -1}, {"mechanism": "fastest"}, {"mechanism": "svm"}, {"mechanism": ""},
        {"direction": np.zeros(3)}, {"passes": np.ones(3)}, {"mechanism": np.zeros(3)}, {"mechanism": None},
        {"shared": "yes"}, {"shared": np.zeros(3)}, {"shared": None},
    ],
)  # fmt: skip
def test_needs(fake: Any, need: dict[str, Any]) -> None:
    with pytest.raises(NeedError):
        umsh.bind(8, "u1", **need)


@pytest.mark.parametrize(
    ("mechanism", "fact"),
    [
        ("gone.4k:WA/RA", "attribute 7 is 0"),
        ("nvram.4k:WA/RA", "no memory kind 'nvram'"),
        ("fast.hugetlb:WA/RA", "no 'hugetlb' pages"),
        ("pinned.driver:WA/RB", "the fact it lacks"),
        ("pinned.driver:copy/RA", "only go together"),
        ("pinned.driver:copy/copy", "only go together"),
        ("copy.4k:WA/RA", "only go together"),
    ],
)
def test_a_forced_mechanism_is_never_replaced(fake: Any, mechanism: str, fact: str) -> None:
    """B3"""
    with pytest.raises(UnsupportedError, match=fact):
        umsh.bind(8, "u1", mechanism=mechanism)


def test_copies_cannot_serve_a_running_kernel(fake: Any) -> None:
    with pytest.raises(UnsupportedError, match="while a kernel runs"):
        umsh.bind(8, "u1", mechanism="copy.4k:copy/copy", boundary="inside")


def test_nothing_guaranteed_is_an_error_with_every_kinds_reason(fake: Any) -> None:
    fake.kinds = tuple(kind for kind in fake.kinds if kind.name in ("fast", "gone"))
    with pytest.raises(UnsupportedError, match="attribute 7 is 0"):
        umsh.bind(8, "u1")
    with pytest.raises(UnsupportedError, match="atomics"):
        umsh.Flag()


@pytest.mark.parametrize("which", ["opencl:99", "opencl:x", "vulkan:0", "", -1, 99])
def test_devices(which: Any) -> None:
    with pytest.raises(UmshError):
        umsh.bind(8, "u1", device=which)


def test_no_device_at_all_lists_each_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import umsh; umsh.bind(8, 'u1')"
    env = dict(os.environ, PATH="")
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    if told.returncode == 0:
        pytest.skip("this OpenCL runtime needs no linker")
    assert told.returncode == 1, told.stderr  # a Python error, never an abort
    assert "DeviceError" in told.stderr
    assert "binutils" in told.stderr


def test_a_region_larger_than_the_machine_is_a_memory_error(device: Any) -> None:
    """B4"""
    with pytest.raises(MemoryError) as caught:
        umsh.bind(1 << 45, "u1", device="opencl:0")
    assert isinstance(caught.value, OutOfMemory)


def test_a_device_lost_in_bind_leaves_no_memory(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1"""

    def lost(*_: Any) -> None:
        raise DeviceError("The device is gone.")

    allocated = []
    real = fake.allocate
    monkeypatch.setattr(fake, "allocate", lambda *a: allocated.append(real(*a)) or allocated[0])
    monkeypatch.setattr(fake, "stream", lost)
    with pytest.raises(DeviceError):
        umsh.bind(8, "u1", mechanism="copy.4k:copy/copy")
    assert len(allocated) == len(fake.freed) == 1


def test_a_region_unbound_twice_or_used_afterwards_raises(fake: Any) -> None:
    region = umsh.bind(8, "u1")
    umsh.unbind(region)
    for use in (
        lambda: umsh.unbind(region),
        lambda: umsh.read(region),
        lambda: umsh.write(region, np.zeros(8, "u1")),
        lambda: region.on_cpu().__enter__(),
        lambda: region.on_gpu().__enter__(),
        lambda: region.share(),
        lambda: region.__enter__(),
        lambda: umsh.explain(region),
        lambda: region.cpu,
    ):
        with pytest.raises(TurnError, match="was unbound"):
            use()
    assert "unbound" in repr(region)


@pytest.mark.parametrize("handle", [None, "opencl:0", {}, 7])
def test_only_handles_are_attached(fake: Any, handle: Any) -> None:
    with pytest.raises(NeedError, match="no handle"):
        umsh.attach(handle)


def test_only_known_things_are_explained(fake: Any) -> None:
    with pytest.raises(NeedError, match="int cannot be explained"):
        umsh.explain(3)


@pytest.mark.parametrize("verb", [umsh.read, umsh.unbind, lambda r: umsh.write(r, np.zeros(8, "u1"))])
def test_timeouts_that_are_no_time_are_refused(fake: Any, verb: Any, held_stream: Any) -> None:
    region = umsh.bind(8, "u1")
    with region.on_gpu(stream=held_stream):
        pass
    for timeout_s in (float("nan"), float("inf"), "1", None):
        with pytest.raises(NeedError, match="timeout_s"):
            region.on_cpu(timeout_s=timeout_s).__enter__()
    held_stream.complete()
    verb(region)


@pytest.mark.parametrize(
    "wrong",
    [
        {"passes": "x"}, {"passes": 1.5}, {"dtype": "(3,)f4"}, {"dtype": "(-1,)f4"}, {"mechanism": None},
        {"mechanism": 5}, {"choice": 5}, {"dtype": [("a", "f4"), ("a", "f4")]},
    ],
    ids=str,
)  # fmt: skip
def test_a_need_of_the_wrong_type_is_one_typed_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(NeedError):
        umsh.bind(16, **{"dtype": "f4", **wrong})


def test_arguments_of_the_wrong_type_are_one_typed_error() -> None:
    words = umsh.bind(16, "u4", boundary="inside")
    region = umsh.bind(16, "f4")
    wrong_calls: list[Callable[[], Any]] = [
        lambda: words.word("a"), lambda: words.word(1.5), lambda: words.publish("a"),
        lambda: words.publish(0, "a"), lambda: umsh.read(region, [0.0] * 16),
        lambda: umsh.write(region, np.zeros(2, "f4"), offset=1.5),
        lambda: umsh.write(region, np.zeros(2, "f4"), offset="a"),
        lambda: umsh.write(region, [[1.0], [1.0, 2.0]]),
        lambda: region.on_gpu(timeout_s=float("inf")).__enter__(), lambda: umsh.unbind(region, "x"),
    ]  # fmt: skip
    for call in wrong_calls:
        with pytest.raises(NeedError):
            call()


def test_small_regions_that_no_large_page_fits_give_no_warning() -> None:
    umsh.unbind(umsh.bind(8192, "u1", mechanism="system.thp:WA/RA"))


def test_numpy_integers_are_whole_numbers_too() -> None:
    words = umsh.bind(16, "u4", boundary="inside", passes=np.int64(2))
    word = words.word(np.int64(3))
    words.publish(np.int64(0), np.int64(8))
    region = umsh.bind(16, "f4")
    umsh.write(region, np.ones(2, "f4"), offset=np.int64(14))
    assert umsh.acquire(word) == 0
    assert umsh.read(region)[13:].tolist() == [0, 1, 1]


@pytest.mark.parametrize("given", [None, "x", 3, [], np.zeros(4, "f4"), object()])
def test_verbs_on_something_else(fake: Any, given: Any) -> None:
    """A lock is no flag either: set would overwrite it."""
    for verb in (umsh.unbind, umsh.read, lambda it: umsh.write(it, np.zeros(4, "f4")), umsh.attach):
        with pytest.raises(NeedError, match=f"A? ?{type(given).__name__} is no"):
            verb(given)
    for other in (given, umsh.Lock()):
        for control in (
            lambda it: umsh.wait(it, 0), lambda it: umsh.set(it, 1),
            umsh.acquire, lambda it: umsh.release(it, 1),
        ):  # fmt: skip
            with pytest.raises(NeedError, match=r"is no (flag|word)"):
                control(other)
    for control in (umsh.lock, umsh.unlock):
        with pytest.raises(NeedError, match="is no lock"):
            control(umsh.Flag())
