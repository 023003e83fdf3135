"""The CPU thread that takes delegated locks for the GPU, for as long as GPU work needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from umsh.backends.driver import Pending
from umsh.native import lib

T = TypeVar("T")
SERVE_TIMEOUT_S = 120.0  # bound of a server that nobody stops


class Delegate:
    """Serves `count` locks from address `locks`, `stride` bytes apart, until stop()."""

    def __init__(
        self, locks: int, count: int = 1, stride: int = 0, timeout_s: float = SERVE_TIMEOUT_S
    ) -> None:
        self._stop = np.zeros(1, np.uint32)
        self.grants = 0
        stop, bound_ns = self._stop.ctypes.data, int(timeout_s * 1e9)

        def serve() -> None:
            self.grants = lib.umsh_delegate_serve(locks, count, stride, stop, bound_ns)

        self._thread = threading.Thread(target=serve, name="umsh-delegate", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread once the GPU holds none of its locks. Idempotent."""
        self._stop[0] = 1
        self._thread.join()


class Delegated(Pending[T], Generic[T]):
    """Work of the GPU that needs a delegate until it has ended."""

    def __init__(self, work: Pending[T], delegate: Delegate) -> None:
        self._work = work
        self._delegate = delegate

    def result(self, timeout_s: float) -> T:
        value = self._work.result(timeout_s)
        self._delegate.stop()
        return value


def serving(locks: int, count: int, stride: int, start: Callable[[], Pending[T]]) -> Pending[T]:
    """Start work with a delegate beside it."""
    delegate = Delegate(locks, count, stride)
    try:
        return Delegated(start(), delegate)
    except BaseException:
        delegate.stop()
        raise
