"""Lifetime: driver memory is freed once, by its last holder, never under running work or after fork."""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from umsh.errors import DeviceError, NeedError, TurnError, UmshWarning, WaitTimeout

if TYPE_CHECKING:
    from umsh.backends.driver import Event, Memory, Stream

FREE_WAIT_S = 10.0  # how long dropping a region waits for work that may still touch it


class Closable(Protocol):
    """What closes itself in a forked child."""

    def _close(self, reason: str) -> None: ...


_open: weakref.WeakSet[Any] = weakref.WeakSet()
_bound: weakref.WeakSet[Keeper] = weakref.WeakSet()
guard = threading.RLock()  # of _bound; held over the check and the binding of adopted memory
_alive: set[Memory] = set()  # what is not freed yet, and what a stuck kernel keeps for good


class Keeper:
    """Owner of one driver Memory; regions, arrays, words and DLPack capsules refer to it.

    work: the stream lent to an open GPU turn, or the event recorded at its end; the memory is not
    freed before that is done. adopted: the user's own array, which stays valid after free().
    """

    __slots__ = ("__weakref__", "_finalizer", "adopted", "memory", "work")

    def __init__(self, memory: Memory, adopted: object = None) -> None:
        self.memory = memory
        self.adopted = adopted
        self.work: list[Event | Stream] = []
        self._finalizer = weakref.finalize(self, _free, memory, self.work, os.getpid())
        self._finalizer.atexit = False
        _alive.add(memory)
        with guard:
            _bound.add(self)

    def settle(self, timeout_s: float) -> None:
        """Wait until recorded work is done; WaitTimeout leaves everything as it was."""
        _settle(self.work, timeout_s)

    def free(self) -> None:
        """Free now, after the recorded work; for memory that no array was lent of. Idempotent."""
        self._finalizer()

    def unbind(self) -> None:
        """The region is gone: adopted memory is the user's again, other memory goes with its last array."""
        with guard:
            _bound.discard(self)
        if self.adopted is not None:
            self.free()


def overlap(address: int, nbytes: int) -> tuple[int, int] | None:
    """The first bound bytes [start, end) inside [address, address + nbytes), None when there are none."""
    with guard:
        for keeper in _bound:
            start, end = keeper.memory.address, keeper.memory.address + keeper.memory.nbytes
            if start < address + nbytes and address < end:
                return max(start, address), min(end, address + nbytes)
    return None


def forkable(thing: Closable) -> None:
    """Let `thing` be closed in a child that fork makes."""
    _open.add(thing)


def _settle(work: list[Event | Stream], timeout_s: float) -> None:
    if not (isinstance(timeout_s, int | float) and math.isfinite(timeout_s)):
        raise NeedError(f"timeout_s={timeout_s!r} is no bound.", "Nothing was done.", "Give finite seconds.")
    deadline = time.monotonic() + timeout_s
    while work:
        left_s = max(0.0, deadline - time.monotonic())
        pending: Any = work[0]
        pending.synchronize(left_s) if hasattr(pending, "synchronize") else pending.wait(left_s)
        work.pop(0)


def _free(memory: Memory, work: list[Event | Stream], pid: int) -> None:
    """Free `memory` in the process that bound it, after its work; a stuck kernel keeps it for good."""
    if os.getpid() != pid:
        return
    try:
        _settle(work, FREE_WAIT_S)
    except WaitTimeout:
        warnings.warn(
            UmshWarning(
                f"Work on a dropped region of {memory.nbytes} bytes still ran after {FREE_WAIT_S} s. "
                "Its memory is kept until this process ends. Look for a kernel that polls."
            ),
            stacklevel=2,
        )
        return
    except DeviceError:
        work.clear()  # the work failed, so nothing runs any more; who waits for results is told there
    memory.free()
    _alive.discard(memory)


def _outlive() -> None:
    """Let memory outlive the interpreter: arrays and kernels may still use it; the system takes the pages."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_alive))


def _after_fork() -> None:
    global guard
    guard = threading.RLock()  # another thread of the parent may have held it
    reason = "This object belongs to the parent process; this is a forked child."
    for thing in list(_open):
        thing._close(reason)
    _open.clear()


def closed(reason: str) -> TurnError:
    """The error of any use of a region, flag, lock or word that is closed."""
    return TurnError(
        reason, "Nothing was done.", "Bind a new one; in other processes use spawn and umsh.attach."
    )


atexit.register(_outlive)
os.register_at_fork(after_in_child=_after_fork)
