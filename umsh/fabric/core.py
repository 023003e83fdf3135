"""The fabric's state under one lock: transfers in, steps of all links, policy windows, failure."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from umsh.errors import DeviceError
from umsh.fabric.backend import Backend
from umsh.fabric.link import parse
from umsh.fabric.link_engine import LinkEngine
from umsh.fabric.pacer import CHUNK_NBYTES, IN_FLIGHT_MAX, Pacer
from umsh.fabric.transfer import CANCELLED, DONE, FAILED, QUEUED, Transfer
from umsh.fabric.windows import Windows

if TYPE_CHECKING:
    from umsh.fabric.flow import Flow


STEPS_MAX = 8
"""Most rounds of one step for copies that callbacks start; the next step takes up the rest."""


class Core:
    """Everything the dispatcher and callers share. `lock` is held for microseconds; no call here waits."""

    def __init__(self, backend: Backend, chunk_nbytes: int = CHUNK_NBYTES) -> None:
        self.backend = backend
        self.chunk_nbytes = chunk_nbytes
        self.lock = threading.RLock()
        self.engines: dict[str, LinkEngine] = {}
        self.flows: dict[str, Flow] = {}
        self.windows = Windows()
        self.unpaced_because: str | None = None
        """Why pacing is off for good: a fault in the dispatcher, or the fabric was closed."""
        self.lost: BaseException | None = None
        """The driver error after which nothing works any more."""
        self.plain: list[Transfer] = []
        self._stepping = self._again = False
        self._flights: dict[object, Transfer] = {}
        self._sequence = itertools.count()

    def engine(self, name: str) -> LinkEngine:
        """The link's engine; its first use measures the link's capacity."""
        if name not in self.engines:
            pacer = Pacer(self.backend.capacity_bps(name), self.chunk_nbytes)
            stream = self.backend.open_stream(parse(name).device)
            with self.lock:
                self.engines.setdefault(name, LinkEngine(self.backend, name, pacer, stream))
        return self.engines[name]

    def check(self) -> None:
        """Raise if the device is lost."""
        if self.lost is not None:
            raise DeviceError(
                f"The fabric lost its device: {self.lost}",
                "Nothing was copied.",
                "Make a new Fabric once the device works again.",
            ) from self.lost

    def submit(self, transfer: Transfer) -> None:
        """Queue `transfer`, or hand it to the link at once when pacing is off for good."""
        engine = self.engine(transfer.link)
        with self.lock:
            self.check()
            self.register(transfer)
            if transfer.nbytes == 0 and transfer.gate is None:
                transfer.finish(DONE, self.backend.now())
            elif self.unpaced_because is None:
                engine.queue_of(transfer.flow).add(transfer)
            else:
                self._send_whole(engine, transfer)

    def register(self, transfer: Transfer) -> None:
        """Give `transfer` its place in the order and make it known by its key."""
        with self.lock:
            transfer.sequence = next(self._sequence)
            if transfer.key is not None:
                self._flights[transfer.flight] = transfer
                transfer.add_done_callback(lambda done: self._flights.pop(done.flight, None))

    def report(self, flow: Flow, nbytes: int, seconds: float, link: str) -> None:
        """Account for a copy made elsewhere; see `Flow.report`."""
        engine = self.engine(link)
        with self.lock:
            now_s = self.backend.now()
            queue = engine.queue_of(flow)
            queue.window_nbytes += nbytes
            queue.served_nbytes += nbytes
            queue.last_active_s = queue.outside_s = now_s
            queue.last_latency_s, queue.last_latency_at_s = seconds, now_s
            flow.note_latency(seconds)

    def join(self, transfer: Transfer) -> bool:
        """Attach to the copy in flight with the same key, lending it this flow's urgency; False if none."""
        with self.lock:
            leader = self._flights.get(transfer.flight)
            if leader is None or leader.finished() or leader.nbytes != transfer.nbytes or leader.cancelling:
                return False
            leader.followers.append(transfer)
            transfer.leader = leader
            if transfer.flow.priority < leader.flow.priority and leader.remaining_nbytes:
                engine = self.engines[leader.link]
                engine.queue_of(leader.flow).remove(leader)
                leader.notes.append(
                    f"moved from flow {leader.flow.name} to {transfer.flow.name}, which waits for it"
                )
                leader.flow = transfer.flow
                engine.queue_of(leader.flow).add(leader)
            return True

    def cancel(self, transfer: Transfer) -> int:
        """Drop what is not submitted; see `Transfer.cancel`."""
        with self.lock:
            now_s = self.backend.now()
            if transfer.state != QUEUED:
                return 0
            if transfer.leader is not None:
                if transfer in transfer.leader.followers:
                    transfer.leader.followers.remove(transfer)
                transfer.finish(CANCELLED, now_s)
                return transfer.nbytes
            if transfer.followers or transfer.remaining_nbytes == 0 or transfer.link not in self.engines:
                return 0
            dropped = transfer.remaining_nbytes
            self.engines[transfer.link].queue_of(transfer.flow).remove(transfer)
            transfer.cancelling = CANCELLED
            if transfer.gate is not None:
                self.backend.free_event(transfer.gate)
            if not transfer.in_flight:
                transfer.finish(CANCELLED, now_s)
            return dropped

    def step(self, grants_max: int = IN_FLIGHT_MAX) -> float | None:
        """One round: reap every link and submit at most `grants_max` chunks on each, run a due policy window.

        Returns when time alone allows more work (seconds of the backend's clock), or None.
        """
        with self.lock:
            if self.lost is not None:
                return None
            if self._stepping:  # a callback of a finished transfer copies again
                self._again = True
                return None
            self._stepping, self._again = True, True
            wake_s = None
            try:
                for _ in range(STEPS_MAX):
                    if not self._again:
                        break
                    self._again = False
                    wake_s = self._step(grants_max)
            except DeviceError as error:
                self.fail(error)
            finally:
                self._stepping = False
            return wake_s

    def polling(self) -> bool:
        """True while an event on the device may allow more work."""
        return bool(self.plain) or any(e.in_flight or (e.gated and not e.held) for e in self.engines.values())

    def fail(self, error: BaseException) -> None:
        """The device is lost: end every transfer with `error`, so that nobody waits for it."""
        with self.lock:
            self.lost = error
            now_s = self.backend.now()
            waiting = [t for engine in self.engines.values() for t in engine.drain()]
            flying = [chunk.transfer for engine in self.engines.values() for chunk in engine.in_flight]
            for engine in self.engines.values():
                engine.in_flight.clear()
            for transfer in [*waiting, *flying, *self.plain]:
                transfer.finish(FAILED, now_s, error)
            self.plain.clear()

    def release(self, because: str) -> None:
        """Pacing is over: hand everything that is queued to the links now, in order, producers respected."""
        with self.lock:
            if self.unpaced_because is not None:
                return
            self.unpaced_because = because
            for engine in self.engines.values():
                engine.held = 0
                for transfer in engine.drain():
                    self._send_whole(engine, transfer)

    def _send_whole(self, engine: LinkEngine, transfer: Transfer) -> None:
        backend, stream = self.backend, engine.stream
        try:
            if transfer.gate is not None:
                # A stream of its own: a producer that never ends must not hold the others.
                stream = backend.open_stream(engine.link.device)
                backend.wait_event(stream, transfer.gate)
            if not transfer.yields:
                while transfer.remaining_nbytes:
                    backend.copy(engine.name, stream, transfer.take(transfer.remaining_nbytes))
            transfer.last_event = backend.record(stream)
        except DeviceError as error:
            self.fail(error)
            transfer.finish(FAILED, backend.now(), error)
            return
        transfer.notes.append(f"sent unpaced: {self.unpaced_because}")
        self.plain.append(transfer)

    def _step(self, grants_max: int) -> float | None:
        now_s = self.backend.now()
        self.reap_plain(now_s)
        wakes = []
        if self.unpaced_because is None:
            window_s = self.windows.run_if_due(now_s, self.engines)
            if window_s is not None:
                wakes.append(window_s)
        for engine in list(self.engines.values()):
            engine.step(now_s, grants_max)
            if engine.wake_s is not None:
                wakes.append(engine.wake_s)
        return min(wakes, default=None)

    def reap_plain(self, now_s: float) -> None:
        """End the plain copies that have landed."""
        landed = [t for t in self.plain if t.last_event is not None and self.backend.done(t.last_event)]
        for transfer in landed:
            self.plain.remove(transfer)
            self.backend.free_event(transfer.last_event)
            transfer.completed_nbytes = transfer.nbytes
            transfer.finish(DONE, now_s)

    def idle(self) -> bool:
        """True when nothing is queued or in flight."""
        return not self.plain and not any(
            engine.in_flight or any(queue.lanes for queue in engine.queues.values())
            for engine in self.engines.values()
        )
