"""Who turns the crank: one thread that sleeps without work, or the virtual clock."""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from typing import Protocol

from umsh.fabric.backend import Event
from umsh.fabric.core import Core
from umsh.fabric.pacer import IN_FLIGHT_MAX
from umsh.fabric.transfer import Transfer
from umsh.fabric.virtual import VirtualBackend

_log = logging.getLogger("umsh.fabric")

CHECK_S = 0.05
"""How often a waiter looks whether the dispatcher is still alive."""
SPIN_S = 40e-6
"""Polling starts this long before a chunk should land."""
POLL_S = 8e-6
GATE_S = 50e-6
"""How often producers' events are asked for while nothing is in flight."""
HELP_S = 1e-3
HELP_PAUSE_S = 10e-6
CLOSE_S = 10.0
_PR_SET_TIMERSLACK = 29


class Dispatcher(Protocol):
    """Runs `Core.step` whenever it may allow work."""

    def kick(self) -> None:
        """Something was submitted or changed."""

    def wait(self, transfer: Transfer, timeout_s: float | None, submitted: bool = False) -> None:
        """Return when `transfer` has ended, or has been submitted whole; raise `WaitTimeout`."""

    def on_await(self, transfer: Transfer) -> None:
        """Someone awaits `transfer`: see that it ends without further calls."""

    def close(self, timeout_s: float) -> None:
        """Stop, with everything handed to the links."""


class ThreadDispatcher:
    """One thread a fabric, started by the first paced copy; sleeps until a call or a deadline without work,
    polls events only while chunks are in flight or a producer is awaited."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wake = threading.Condition(threading.Lock())
        self._kicked = self._stop = False
        self._thread: threading.Thread | None = None

    def kick(self) -> None:
        if self._core.lock.acquire(blocking=False):  # else the dispatcher is in it, and comes again
            try:
                with self._core.backend.relaxed():
                    self._step(grants_max=1)  # an idle link starts without a thread switch
            finally:
                self._core.lock.release()
        with self._wake:
            self._kicked = True
            self._wake.notify()
            if self._thread is None and not self._stop and self._core.unpaced_because is None:
                self._thread = threading.Thread(target=self._run, name="umsh-fabric", daemon=True)
                self._thread.start()

    def wait(self, transfer: Transfer, timeout_s: float | None, submitted: bool = False) -> None:
        backend = self._core.backend
        deadline = None if timeout_s is None else backend.now() + timeout_s
        pause_s = 20e-6
        if _submitted(transfer):
            self._help(transfer)
        while not (transfer.finished() or (submitted and _submitted(transfer))):
            left = None if deadline is None else deadline - backend.now()
            if left is not None and left <= 0:
                raise transfer.timed_out(timeout_s or 0)
            if self._alive() and not submitted:
                transfer.finished(CHECK_S if left is None else min(CHECK_S, left))
                continue
            # No thread (plain copies, or the thread died): the waiter turns the crank itself.
            if self._thread is not None and not self._alive() and not self._stop:
                self._core.release("the dispatcher thread died")
            with backend.relaxed():
                self._step()
            transfer.finished(pause_s)
            pause_s = min(2 * pause_s, 1e-3)

    def on_await(self, transfer: Transfer) -> None:
        self.kick()

    def _help(self, transfer: Transfer) -> None:
        """A copy on its way for less than `HELP_S` is waited for here: no thread need wake another."""
        backend, core = self._core.backend, self._core
        end_s = backend.now() + HELP_S
        with backend.relaxed():
            while not transfer.finished() and backend.now() < end_s:
                event = transfer.last_event
                if event is not None and core.lost is None and backend.done(event):
                    self._step(grants_max=1)
                time.sleep(HELP_PAUSE_S)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        with self._wake:
            self._stop = True
            self._wake.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        _sharpen_timer()
        try:
            with self._core.backend.relaxed():
                while not self._stop:
                    self._sleep(self._step())
        finally:
            if not self._stop:
                self._core.release("the dispatcher thread died")

    def _step(self, grants_max: int = IN_FLIGHT_MAX) -> float | None:
        try:
            return self._core.step(grants_max)
        except Exception as error:  # a scheduler that hangs a model is worse than none: let go, and tell
            _log.exception("the fabric's pacing failed; every copy goes unpaced from now on")
            self._core.release(f"the dispatcher failed: {error!r}")
            return None

    def _sleep(self, wake_s: float | None) -> None:
        """Until a call, a deadline, or an event: asleep while the chunk in front is on its way."""
        core, backend = self._core, self._core.backend
        now_s = backend.now()
        pause_s = None if wake_s is None else max(0.0, wake_s - now_s)
        fronts = [engine.front() for engine in list(core.engines.values())]
        if any(front is not None for front in fronts):
            landing_s = min(front.expected_s for front in fronts if front is not None)
            nap_s = landing_s - now_s - SPIN_S
            if nap_s > 0 and self._nap(nap_s if pause_s is None else min(nap_s, pause_s)):
                return
            self._poll([front.event for front in fronts if front is not None], wake_s)
        elif core.polling():
            self._nap(GATE_S if pause_s is None else min(GATE_S, pause_s))
        else:
            self._nap(pause_s)
        self._kicked = False

    def _nap(self, pause_s: float | None) -> bool:
        """Sleep until kicked, at most `pause_s`; True if kicked (which is then taken note of)."""
        with self._wake:
            if not self._kicked and not self._stop and (pause_s is None or pause_s > 0):
                self._wake.wait(pause_s)
            kicked, self._kicked = self._kicked, False
        return kicked

    def _poll(self, events: list[Event], wake_s: float | None) -> None:
        """Until one of `events` is done. Real sleeps between: a loop that only drops the interpreter lock for
        each query takes it again before a waiting thread has woken."""
        backend = self._core.backend
        while not self._kicked and not self._stop:
            if any(backend.done(event) for event in events):
                return
            if wake_s is not None and backend.now() >= wake_s:
                return
            time.sleep(POLL_S)


def _sharpen_timer() -> None:
    """Let this thread's short sleeps end on time: Linux rounds them up by 50 us otherwise."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class VirtualDispatcher:
    """Steps the core when the modelled host would: `submit_s` after a call, `react_s` after an event."""

    def __init__(self, core: Core, backend: VirtualBackend) -> None:
        self._core, self._backend = core, backend
        self._planned_s = float("inf")
        backend.on_event = self._react

    def kick(self) -> None:
        self._plan(self._backend.clock.now_s + self._backend.machine.model.submit_s)

    def wait(self, transfer: Transfer, timeout_s: float | None, submitted: bool = False) -> None:
        clock = self._backend.clock
        deadline = float("inf") if timeout_s is None else clock.now_s + timeout_s
        self.kick()
        while not (transfer.finished() or (submitted and _submitted(transfer))):
            if not clock.step(deadline):
                raise transfer.timed_out(timeout_s or 0)

    def on_await(self, transfer: Transfer) -> None:
        self.wait(transfer, None)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        while not self._core.idle() and self._core.lost is None and self._backend.clock.step():
            pass

    def _react(self) -> None:
        self._plan(self._backend.clock.now_s + self._backend.machine.model.react_s)

    def _plan(self, time_s: float) -> None:
        clock = self._backend.clock
        if clock.now_s <= self._planned_s <= time_s:
            return
        self._planned_s = time_s
        clock.at(time_s, self._step)

    def _step(self) -> None:
        if self._backend.clock.now_s < self._planned_s:
            return
        self._planned_s = float("inf")
        wake_s = self._core.step()
        if wake_s is not None:
            self._plan(max(wake_s - self._backend.lag_s, self._backend.clock.now_s + 1e-6))


def _submitted(transfer: Transfer) -> bool:
    return transfer.remaining_nbytes == 0 and transfer.last_event is not None


def dispatcher(core: Core) -> Dispatcher:
    """The dispatcher that suits the core's backend."""
    if isinstance(core.backend, VirtualBackend):
        return VirtualDispatcher(core, core.backend)
    return ThreadDispatcher(core)
