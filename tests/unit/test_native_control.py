"""Flags and locks from Python: states, misuse, and other threads running meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from umsh.native import lib, map_pages

ALGORITHMS = {
    "cas": lib.UMSH_LOCK_CAS,
    "ticket": lib.UMSH_LOCK_TICKET,
    "peterson": lib.UMSH_LOCK_PETERSON,
}
LONG_NS = 60_000_000_000  # never reached in a passing run


@pytest.fixture
def words() -> Iterator[int]:
    """Address of a zeroed page."""
    mapping = map_pages(4096, "4k")
    yield mapping.address
    mapping.close()


def test_a_flag_that_ran_ahead_counts_as_reached(words: int) -> None:
    lib.umsh_flag_set(words, 8)
    assert lib.umsh_flag_wait(words, 5, 0) == lib.UMSH_WAIT_REACHED
    assert lib.umsh_flag_wait(words, 9, 0) == lib.UMSH_WAIT_TIMEOUT


@pytest.mark.parametrize("timeout_ns", [-1, 0, 1, 50_000, 3_000_000])
def test_a_wait_without_a_setter_ends(words: int, timeout_ns: int) -> None:
    assert lib.umsh_flag_wait(words, 1, timeout_ns) == lib.UMSH_WAIT_TIMEOUT


def test_other_threads_run_while_one_waits(words: int) -> None:
    """The interpreter's lock is released: the setter is a thread of the same interpreter."""
    setter = threading.Thread(target=lambda: lib.umsh_flag_set(words, 1))
    threading.Timer(0.01, setter.start).start()
    assert lib.umsh_flag_wait(words, 1, LONG_NS) == lib.UMSH_WAIT_REACHED
    setter.join()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_lock_states(words: int, algorithm: str) -> None:
    number, other = ALGORITHMS[algorithm], lib.UMSH_TAG_GPU | 5
    assert lib.umsh_lock_acquire(words, number, 0, 0) == lib.UMSH_LOCK_OK
    assert lib.umsh_load_acquire(words) == threading.get_native_id()
    assert lib.umsh_lock_acquire(words, number, 0, LONG_NS) == lib.UMSH_LOCK_RELOCK
    assert lib.umsh_lock_acquire(words, number, other, 1000) == lib.UMSH_LOCK_TIMEOUT
    assert lib.umsh_lock_release(words, number, other) == lib.UMSH_LOCK_NOT_HOLDER
    assert lib.umsh_lock_release(words, number, 0) == lib.UMSH_LOCK_OK
    assert lib.umsh_lock_acquire(words, number, other, 0) == lib.UMSH_LOCK_OK
    assert lib.umsh_lock_acquire(words, number, 0, 100_000) == lib.UMSH_LOCK_TIMEOUT
    assert lib.umsh_lock_release(words, number, other) == lib.UMSH_LOCK_OK


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_lock_keeps_plain_increments_apart(words: int, algorithm: str) -> None:
    """Two CPU threads and two that take the GPU's side of the lock."""
    rounds, counter, done = 20_000, words + 1024, []

    def count(tag: int) -> None:
        done.append(lib.umsh_lock_rounds(words, counter, rounds, ALGORITHMS[algorithm], tag, LONG_NS))

    tags = (0, 0, lib.UMSH_TAG_GPU | 1, lib.UMSH_TAG_GPU | 2)
    threads = [threading.Thread(target=count, args=(tag,)) for tag in tags]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [rounds] * 4
    assert lib.umsh_load_acquire(counter) == 4 * rounds


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_thread_that_ended_with_the_lock_is_noticed(words: int, algorithm: str) -> None:
    number = ALGORITHMS[algorithm]
    thread = threading.Thread(target=lambda: lib.umsh_lock_acquire(words, number, 0, 0))
    thread.start()
    thread.join()
    assert lib.umsh_lock_acquire(words, number, 0, LONG_NS) == lib.UMSH_LOCK_HOLDER_DIED


def test_a_process_that_died_with_the_lock_is_noticed() -> None:
    """By another process, through shared memory that it attached."""
    mapping = map_pages(4096, "4k", shared=True)
    program = (
        "import sys; from umsh.native import attach_pages, lib;"
        "mapping = attach_pages(int(sys.argv[1]), 4096);"
        "sys.exit(lib.umsh_lock_acquire(mapping.address, lib.UMSH_LOCK_CAS, 0, 0))"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(mapping.fd)], pass_fds=[mapping.fd], check=True, timeout=60
    )
    number = lib.UMSH_LOCK_CAS
    assert lib.umsh_lock_acquire(mapping.address, number, 0, LONG_NS) == lib.UMSH_LOCK_HOLDER_DIED
    mapping.close()


@pytest.mark.parametrize("bare", [False, True])
def test_echo_completes_every_round_or_ends_by_itself(words: int, bare: bool) -> None:
    echo = lib.umsh_echo_bare if bare else lib.umsh_echo
    second = threading.Thread(target=lambda: echo(words, 500, 0, LONG_NS))
    second.start()
    assert echo(words, 500, 1, LONG_NS) == 500
    second.join()
    lib.umsh_store_release(words + lib.UMSH_LINE_BYTES, 0)
    assert echo(words, 5, 1, 2_000_000) == 0
