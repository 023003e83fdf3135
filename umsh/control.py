"""Flag, Lock and Word: control memory that both agents reach while kernels run."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from umsh.errors import LockHolderDied, NeedError, TurnError, WaitTimeout
from umsh.lifetime import Keeper, closed, forkable
from umsh.native import lib

if TYPE_CHECKING:
    from umsh.views import Array

TIMEOUT_S, TIMEOUT_S_MIN, TIMEOUT_S_MAX = 60.0, -1e9, 1e9
SLICE_NS, LOCK_SLICE_NS = 50_000_000, 1_000_000_000  # of a wait, between which Ctrl-C is taken
OWN_TAG = 0  # the calling thread, which the native module looks up once
LOCK_LIFE_S_MAX = 1e9  # of a delegated lock's thread, which ends with its lock
ALGORITHMS = {
    "cas": lib.UMSH_LOCK_CAS,
    "ticket": lib.UMSH_LOCK_TICKET,
    "peterson": lib.UMSH_LOCK_PETERSON,
    "delegated": lib.UMSH_LOCK_DELEGATED,
}

_TIMED_OUT = lib.UMSH_LOCK_TIMEOUT
_flag_wait = lib.umsh_flag_wait
_flag_set = lib.umsh_flag_set
_lock_acquire = lib.umsh_lock_acquire
_lock_release = lib.umsh_lock_release
_load_acquire = lib.umsh_load_acquire
_store_release = lib.umsh_store_release


class _Control:
    """Memory of a flag or lock, and its end."""

    __slots__ = ("__weakref__", "_address", "_keeper", "_why", "arg", "device", "ptr")

    def __init__(self, nbytes: int, pattern: str, threads: int, device: int | str) -> None:
        from umsh.backends import open_device
        from umsh.resolve import resolve_control

        self.device = opened = open_device(device)
        self._why = resolve_control(opened, pattern, threads)
        kinds = {kind.name: kind for kind in opened.memory_kinds()}
        memory = opened.allocate(self._why.memory, nbytes, kinds[self._why.memory].pages[0])
        self._keeper = Keeper(memory)
        self._address = memory.address
        self.ptr = memory.device_address
        self.arg = memory.kernel_arg
        forkable(self)

    def _close(self, reason: str) -> None:
        raise NotImplementedError


class Flag(_Control):
    """A 32-bit value that counts upwards; waiters wait until it has reached theirs (contract S1-S4).

    pollers: how many GPU threads may wait at once. device: as for umsh.bind.
    ptr, arg: device address and kernel argument, for umsh_wait and umsh_set inside kernels.
    method: the throttle level ("thread", "block", "grid", "kernel") chosen for that many pollers.
    Raises NeedError, UnsupportedError (no memory for it, with the missing fact), DeviceError.
    umsh.wait and umsh.set are its methods, so they look themselves at what they are given.
    """

    __slots__ = ("method",)

    def __init__(self, pollers: int = 1, device: int | str = 0) -> None:
        _check_count("pollers", pollers, 1)
        super().__init__(lib.UMSH_FLAG_BYTES, "wait", pollers, device)
        self.method: str = self._why.method

    @property
    def value(self) -> int:
        """The value now, by one load-acquire."""
        return _load_acquire(self._address)

    def wait(flag, value: int, timeout_s: float = TIMEOUT_S) -> None:  # noqa: N805
        """Return once the flag has reached `value` (contract S1-S4). NeedError, TurnError, WaitTimeout."""
        if not isinstance(flag, Flag):
            raise not_a("flag", flag)
        try:
            if not TIMEOUT_S_MIN < timeout_s < TIMEOUT_S_MAX:
                raise ValueError("it is no finite bound")
            if _flag_wait(flag._address, value, 0):
                flag._wait_long(value, timeout_s)
        except (TypeError, ValueError, OverflowError) as error:
            raise bad_number(error, value=value, timeout_s=timeout_s) from error

    def _wait_long(self, value: int, timeout_s: float) -> None:
        # Apart from wait, whose common case a closure would slow.
        if _sliced(
            lambda ns: _flag_wait(self._address, value, ns), lib.UMSH_WAIT_TIMEOUT, timeout_s, SLICE_NS
        ):
            raise WaitTimeout(
                f"The flag stood at {self.value} after {timeout_s} s, not at {value}.",
                "Nothing was changed.",
                "Look whether the setter ran, or give a longer timeout_s.",
            )

    def set(flag, value: int) -> None:  # noqa: N805
        """Publish `value` by one store-release (contract S1-S4). NeedError, TurnError."""
        if not isinstance(flag, Flag):
            raise not_a("flag", flag)
        try:
            _flag_set(flag._address, value)
        except (TypeError, OverflowError) as error:
            raise bad_number(error, value=value) from error

    def _close(self, reason: str) -> None:
        self.__class__ = _ClosedFlag


class Lock(_Control):
    """Mutual exclusion between CPU threads and GPU threads (contract L1-L5).

    cpu_threads, gpu_threads: how many threads of each agent take it. device: as for umsh.bind.
    ptr, arg: device address and kernel argument, for umsh_lock and umsh_unlock inside kernels.
    algorithm: "cas", "ticket", "peterson" or "delegated", as the choice or the safe default has it.
    A delegated lock keeps a CPU thread of this process that takes it for the GPU.
    Raises NeedError, UnsupportedError (no memory or algorithm for it), DeviceError.
    """

    __slots__ = ("_code", "algorithm")

    def __init__(self, cpu_threads: int = 1, gpu_threads: int = 1, device: int | str = 0) -> None:
        _check_count("cpu_threads", cpu_threads, 0)
        _check_count("gpu_threads", gpu_threads, 0)
        super().__init__(lib.UMSH_LOCK_BYTES, "lock", gpu_threads, device)
        self.algorithm: str = self._why.method
        self._code = ALGORITHMS[self.algorithm]
        if self.algorithm == "delegated":
            from umsh.backends.delegate import Delegate

            weakref.finalize(self, Delegate(self._address, timeout_s=LOCK_LIFE_S_MAX).stop).atexit = False

    def lock(mutex, timeout_s: float = TIMEOUT_S) -> None:  # noqa: N805
        """Take the lock (contract L1-L5). NeedError, TurnError, WaitTimeout, LockHolderDied."""
        if not isinstance(mutex, Lock):
            raise not_a("lock", mutex)
        try:
            if not TIMEOUT_S_MIN < timeout_s < TIMEOUT_S_MAX:
                raise ValueError("it is no finite bound")
            code = _lock_acquire(mutex._address, mutex._code, OWN_TAG, 0)
            if code:
                mutex._lock_long(code, timeout_s)
        except (TypeError, ValueError) as error:
            raise bad_number(error, timeout_s=timeout_s) from error

    def unlock(mutex) -> None:  # noqa: N805
        """Give the lock back (contract L1-L5). NeedError; TurnError when this thread does not hold it."""
        if not isinstance(mutex, Lock):
            raise not_a("lock", mutex)
        if _lock_release(mutex._address, mutex._code, OWN_TAG):
            raise TurnError(
                f"This thread does not hold the lock; thread {mutex.holder:#x} does (0: nobody).",
                "Nothing was changed.",
                "Unlock where you locked, once.",
            )

    def reset(self) -> None:
        """Make the lock free whatever it was; only when no thread of either agent holds or awaits it."""
        for offset in range(0, lib.UMSH_LOCK_BYTES, 4):
            _store_release(self._address + offset, 0)

    @property
    def holder(self) -> int:
        """Thread id of the CPU holder, 0x80000000 | id of a GPU holder, 0 when free."""
        return _load_acquire(self._address)

    def __enter__(self) -> Lock:
        self.lock()
        return self

    def __exit__(self, *_: object) -> None:
        self.unlock()

    def _lock_long(self, code: int, timeout_s: float) -> None:
        if code == _TIMED_OUT:
            # A ticket waiter queues anew with every slice.
            code = _sliced(
                lambda ns: _lock_acquire(self._address, self._code, OWN_TAG, ns),
                _TIMED_OUT,
                timeout_s,
                LOCK_SLICE_NS,
            )
        if code:
            self._not_taken(code, timeout_s)

    def _not_taken(self, code: int, timeout_s: float) -> NoReturn:
        if code == lib.UMSH_LOCK_HOLDER_DIED:
            raise LockHolderDied(
                f"CPU thread {self.holder} held the lock and is gone.",
                "The data under it may be half written; the lock was not taken.",
                "Repair the data, make sure nobody waits, then lock.reset().",
            )
        if code == lib.UMSH_LOCK_RELOCK:
            raise TurnError(
                "This thread holds the lock already.",
                "Waiting would never end; nothing was changed.",
                "Unlock first; locks do not nest.",
            )
        raise WaitTimeout(
            f"The lock was not free within {timeout_s} s (holder {self.holder:#x}).",
            "It was not taken; other waiters are not affected.",
            "Give a longer timeout_s, or look at the holder.",
        )

    def _close(self, reason: str) -> None:
        self.__class__ = _ClosedLock


class Word:
    """One 32-bit control word of a region bound with boundary="inside"; keeps the region's memory."""

    __slots__ = ("__weakref__", "_address", "_memory")

    def __init__(self, memory: Array, address: int) -> None:
        self._memory = memory
        self._address = address
        forkable(self)

    def _close(self, reason: str) -> None:
        self.__class__ = _ClosedWord


def _sliced(wait: Callable[[int], int], timed_out: int, timeout_s: float, slice_ns: int) -> int:
    """The code of `wait(nanoseconds)`, called in slices: Python takes signals only between native calls.

    timed_out: the code by which `wait` says that its time was over.
    """
    left_ns = int(timeout_s * 1e9)
    deadline_ns = time.monotonic_ns() + left_ns
    code = timed_out
    while code == timed_out and left_ns > 0:
        code = wait(min(left_ns, slice_ns))
        left_ns = deadline_ns - time.monotonic_ns()
    return code


def not_a(what: str, given: object) -> NeedError:
    makers = {"flag": "umsh.Flag()", "lock": "umsh.Lock()", "word": "region.word(i) or umsh.Flag()"}
    return NeedError(f"A {type(given).__name__} is no {what}.", "Nothing was done.", f"Use {makers[what]}.")


def bad_number(error: Exception, **given: object) -> NeedError:
    shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return NeedError(
        f"{shown} cannot be used: {error}.",
        "Nothing was done.",
        "Values are 0 to 2**32 - 1, times finite seconds.",
    )


def _check_count(what: str, count: int, least: int) -> None:
    if not isinstance(count, int) or not least <= count < 1 << 32:
        raise NeedError(
            f"{what}={count!r} was given.", "Nothing was made.", f"Use a whole number from {least} up."
        )


def _parents(_: object) -> NoReturn:
    raise closed("This flag, lock or word belongs to the parent process; this is a forked child.")


# After fork an open object becomes its closed class, of the same layout: the address that every verb
# asks for raises instead, so no verb pays for a check.
class _ClosedFlag(Flag):
    __slots__ = ()


class _ClosedLock(Lock):
    __slots__ = ()


class _ClosedWord(Word):
    __slots__ = ()


for _class in (_ClosedFlag, _ClosedLock, _ClosedWord):
    _class._address = property(_parents)  # type: ignore[assignment, misc]
