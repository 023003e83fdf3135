"""Flags, locks and words from the CPU side (contract A1, S1-S4, L1-L5)."""

from __future__ import annotations

import builtins
import threading
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import LockHolderDied, NeedError, TurnError, UnsupportedError, WaitTimeout


@pytest.fixture
def flag(fake: Any) -> umsh.Flag:
    return umsh.Flag()


@pytest.fixture
def lock(fake: Any) -> umsh.Lock:
    return umsh.Lock()


def in_thread(body: Any) -> list[Any]:
    """What `body` returned or raised in another thread."""
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(body())
        except umsh.errors.UmshError as error:
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return out


def test_verbs_and_methods_do_the_same(flag: umsh.Flag, lock: umsh.Lock) -> None:
    umsh.set(flag, 4)
    flag.wait(4)
    flag.set(5)
    umsh.wait(flag, 5)
    umsh.lock(lock)
    lock.unlock()
    lock.lock()
    umsh.unlock(lock)
    assert lock.holder == 0


def test_star_import_leaves_the_builtin_set_alone() -> None:
    names: dict[str, Any] = {}
    exec("from umsh import *", names)
    assert names.get("set", builtins.set) is builtins.set
    assert builtins.set(umsh.__all__) <= names.keys()


@pytest.mark.parametrize("start", [0, 5, 2**32 - 2])
def test_a_setter_that_runs_ahead_loses_no_wake_up(flag: umsh.Flag, start: int) -> None:
    """S2, over the wrap of 32 bits too"""
    umsh.set(flag, (start + 3) % 2**32)
    for value in range(start + 1, start + 4):
        umsh.wait(flag, value % 2**32, timeout_s=0)
    with pytest.raises(WaitTimeout):
        umsh.wait(flag, (start + 4) % 2**32, timeout_s=0)


def test_a_waiting_thread_is_let_through_by_set(flag: umsh.Flag) -> None:
    """S1"""
    data = np.zeros(1)

    def produce() -> None:
        data[0] = 7
        flag.set(1)

    thread = threading.Thread(target=produce)
    thread.start()
    umsh.wait(flag, 1, timeout_s=20)
    assert data[0] == 7
    thread.join()


def test_a_wait_with_no_setter_times_out_and_says_where_the_flag_stands(flag: umsh.Flag) -> None:
    """S4"""
    flag.set(3)
    with pytest.raises(WaitTimeout, match=r"stood at 3 after 0\.01 s, not at 4"):
        flag.wait(4, timeout_s=0.01)
    assert flag.value == 3


@pytest.mark.parametrize("value", [-1, 2**32, 1.5, "1", None])
def test_values_that_are_no_32_bit_number_are_refused(flag: umsh.Flag, value: Any) -> None:
    for verb in (lambda: flag.set(value), lambda: flag.wait(value), lambda: umsh.release(flag, value)):
        with pytest.raises(NeedError, match="cannot be used"):
            verb()
    assert flag.value == 0


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), "1", None])
def test_a_wait_without_a_finite_bound_is_refused(flag: umsh.Flag, lock: umsh.Lock, timeout_s: Any) -> None:
    with pytest.raises(NeedError, match="timeout_s"):
        flag.wait(1, timeout_s=timeout_s)
    with pytest.raises(NeedError, match="timeout_s"):
        lock.lock(timeout_s=timeout_s)
    lock.lock()
    with pytest.raises(NeedError, match="timeout_s"):
        flag.wait(0, timeout_s=timeout_s)  # reached already: the answer does not depend on who was first


def test_a_negative_timeout_is_one_attempt(flag: umsh.Flag) -> None:
    with pytest.raises(WaitTimeout):
        flag.wait(1, timeout_s=-1)


@pytest.mark.parametrize("count", [0, -1, 1.5, 2**40, "2"])
def test_impossible_counts_are_refused(fake: Any, count: Any) -> None:
    with pytest.raises(NeedError, match="pollers="):
        umsh.Flag(pollers=count)
    if count != 0:
        with pytest.raises(NeedError, match="gpu_threads="):
            umsh.Lock(gpu_threads=count)


def test_a_lock_excludes_every_other_thread(lock: umsh.Lock) -> None:
    """L1, L2"""
    total = [0]

    def add() -> None:
        for _ in range(300):
            with lock:
                seen = total[0]
                if seen % 7 == 0:
                    threading.Event().wait(0)
                total[0] = seen + 1

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert total == [900]


def test_misuse_of_a_lock_raises_and_changes_nothing(lock: umsh.Lock) -> None:
    """L3"""
    with pytest.raises(TurnError, match="does not hold"):
        lock.unlock()
    lock.lock()
    with pytest.raises(TurnError, match="already"):
        lock.lock(timeout_s=0.1)
    (error,) = in_thread(lock.unlock)
    assert isinstance(error, TurnError)
    (error,) = in_thread(lambda: lock.lock(timeout_s=0.01))
    assert isinstance(error, WaitTimeout)
    lock.unlock()
    assert lock.holder == 0
    assert in_thread(lambda: lock.lock(timeout_s=0)) == [None]


def test_the_death_of_the_holder_is_told_and_reset_repairs(lock: umsh.Lock) -> None:
    """L4"""
    in_thread(lock.lock)
    with pytest.raises(LockHolderDied, match="half written"):
        lock.lock(timeout_s=5)
    lock.reset()
    lock.lock(timeout_s=0)


def test_a_waiter_that_timed_out_leaves_the_lock_usable(lock: umsh.Lock) -> None:
    """L5"""
    lock.lock()
    for _ in range(40):
        in_thread(lambda: lock.lock(timeout_s=0))
    lock.unlock()
    assert in_thread(lambda: (lock.lock(timeout_s=0), lock.unlock())) == [(None, None)]


def test_words_are_exact_32_bit_cells_of_their_region(fake: Any) -> None:
    """A1"""
    region = umsh.bind(8, "u4", boundary="inside")
    for index in range(8):
        umsh.release(region.word(index), 0xFFFF0000 + index)
    assert [umsh.acquire(region.word(i)) for i in range(8)] == region.cpu.tolist()
    for wrong in (-1, 8):
        with pytest.raises(NeedError, match="Word"):
            region.word(wrong)


def test_the_safe_lock_is_one_this_device_has(fake: Any) -> None:
    """Compare-exchange across the link is reported absent here, so it is not used (contract A5)."""
    assert umsh.Lock().algorithm == "peterson"
    assert "peterson on pinned" in str(umsh.explain(umsh.Lock()))


@pytest.mark.parametrize(("pollers", "level"), [(64, "thread"), (65, "block"), (4097, "kernel")])
def test_pollers_are_throttled_as_far_as_the_device_needs(fake: Any, pollers: int, level: str) -> None:
    """More pollers at a level than can run at once would never all be let through (S3)."""
    assert umsh.Flag(pollers=pollers).method == level


def test_more_pollers_than_any_level_can_run_are_refused(fake: Any) -> None:
    with pytest.raises(UnsupportedError, match="70000 GPU threads"):
        umsh.Flag(pollers=70000)


def test_flags_and_locks_are_freed_with_their_last_reference(fake: Any) -> None:
    flag = umsh.Flag()
    assert flag.arg is not None
    del flag
    assert len(fake.freed) == 1
