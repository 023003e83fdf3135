"""The delegated lock: a CPU thread takes it for an asker that only loads and stores, as a GPU does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from umsh.backends.delegate import Delegate
from umsh.native import lib

SECOND_NS = 1_000_000_000
WANTS, GRANT, CPU_SIDE = 4 * lib.UMSH_LOCK_GPU_WANTS, 4 * lib.UMSH_LOCK_GRANT, 4 * lib.UMSH_LOCK_CPU_SIDE
DEADLINE_S = 20.0


@pytest.fixture
def locks() -> Iterator[int]:
    """Address of two zeroed lock blocks."""
    room = np.zeros(4 * lib.UMSH_LOCK_BYTES, np.uint8)
    yield room.ctypes.data + -room.ctypes.data % lib.UMSH_LINE_BYTES
    del room  # it was alive until here


def ask(lock: int) -> int:
    """Ask as umsh_lock.cuh does; the number asked with."""
    number: int = lib.umsh_load_acquire(lock + WANTS) + 1
    lib.umsh_store_release(lock + WANTS, number)
    return number


def granted(lock: int, number: int, timeout_s: float = DEADLINE_S) -> bool:
    end = time.monotonic() + timeout_s
    while lib.umsh_load_acquire(lock + GRANT) != number:
        if time.monotonic() > end:
            return False
    return True


def give_back(lock: int, number: int) -> None:
    lib.umsh_store_release(lock + WANTS, number + 1)


def test_no_increment_is_lost_between_the_asker_and_cpu_threads(locks: int) -> None:
    counter, rounds = [0], 300
    delegate = Delegate(locks)

    def asker() -> None:
        for _ in range(rounds):
            number = ask(locks)
            assert granted(locks, number)
            seen = counter[0]
            time.sleep(0)
            counter[0] = seen + 1
            give_back(locks, number)

    def locker() -> None:
        tag = lib.umsh_own_tag()
        for _ in range(rounds):
            assert lib.umsh_lock_acquire(locks, lib.UMSH_LOCK_DELEGATED, tag, 20 * SECOND_NS) == 0
            seen = counter[0]
            time.sleep(0)
            counter[0] = seen + 1
            assert lib.umsh_lock_release(locks, lib.UMSH_LOCK_DELEGATED, tag) == 0

    threads = [threading.Thread(target=work) for work in (asker, locker, locker)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    delegate.stop()
    assert counter == [3 * rounds]
    assert delegate.grants == rounds


def test_a_held_lock_is_not_granted(locks: int) -> None:
    tag = lib.umsh_own_tag()
    assert lib.umsh_lock_acquire(locks, lib.UMSH_LOCK_DELEGATED, tag, SECOND_NS) == 0
    delegate = Delegate(locks)
    number = ask(locks)
    assert not granted(locks, number, 0.1)
    assert lib.umsh_lock_release(locks, lib.UMSH_LOCK_DELEGATED, tag) == 0
    assert granted(locks, number)
    give_back(locks, number)
    delegate.stop()


def test_an_asker_that_gives_up_leaves_the_lock_free(locks: int) -> None:
    tag = lib.umsh_own_tag()
    delegate = Delegate(locks)
    for _ in range(50):
        give_back(locks, ask(locks))  # whether or not it was granted in between
    assert lib.umsh_lock_acquire(locks, lib.UMSH_LOCK_DELEGATED, tag, 20 * SECOND_NS) == 0
    assert lib.umsh_lock_release(locks, lib.UMSH_LOCK_DELEGATED, tag) == 0
    delegate.stop()
    assert lib.umsh_load_acquire(locks + CPU_SIDE) == 0


def test_stopping_waits_until_the_asker_has_given_back(locks: int) -> None:
    delegate = Delegate(locks)
    number = ask(locks)
    assert granted(locks, number)
    stopping = threading.Thread(target=delegate.stop)
    stopping.start()
    stopping.join(0.1)
    assert stopping.is_alive()
    give_back(locks, number)
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()


def test_one_thread_serves_many_locks_and_none_blocks_another(locks: int) -> None:
    other = locks + lib.UMSH_LOCK_BYTES
    tag = lib.umsh_own_tag()
    assert lib.umsh_lock_acquire(locks, lib.UMSH_LOCK_DELEGATED, tag, SECOND_NS) == 0
    delegate = Delegate(locks, count=2, stride=lib.UMSH_LOCK_BYTES)
    first, second = ask(locks), ask(other)
    assert granted(other, second)
    assert not granted(locks, first, 0.05)
    give_back(other, second)
    give_back(locks, first)
    assert lib.umsh_lock_release(locks, lib.UMSH_LOCK_DELEGATED, tag) == 0
    delegate.stop()


def test_a_delegate_that_nobody_stops_ends_by_itself(locks: int) -> None:
    delegate = Delegate(locks, timeout_s=0.05)
    delegate._thread.join(DEADLINE_S)
    assert not delegate._thread.is_alive()


def test_native_code_never_takes_it_as_the_gpu(locks: int) -> None:
    tag = lib.UMSH_TAG_GPU | 1
    assert lib.umsh_lock_acquire(locks, lib.UMSH_LOCK_DELEGATED, tag, 0) == lib.UMSH_LOCK_UNKNOWN
