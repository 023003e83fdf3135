"""The fabric of one process: flows, links, and the loop that keeps their goals."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from umsh.errors import NeedError, WaitTimeout
from umsh.fabric import explain as words
from umsh.fabric.backend import Backend, Stream
from umsh.fabric.core import Core
from umsh.fabric.dispatcher import CLOSE_S, dispatcher
from umsh.fabric.flow import Flow
from umsh.fabric.link import Link, parse
from umsh.fabric.pacer import CHUNK_NBYTES
from umsh.fabric.signals import Estimator, Sampler, Source
from umsh.fabric.staging import Stager
from umsh.fabric.virtual import VirtualBackend

DEFAULT_PRIORITY = 1
DEFAULT_FLOOR = 0.01
POLL_S = 1e-4


class Fabric:
    """Schedules copies between host and devices, and between devices, for all flows of this process.

    While no flow states a priority or goal, every copy is a plain one on the caller's stream, and no thread
    runs. Once one does, all copies pass one queue a link, and one thread serves it.

    `backend`: the CUDA driver by default (`UnsupportedError` names what is missing), or a `VirtualBackend`.
    `chunk_nbytes`: the most that is in the way of an urgent copy is two chunks of this size. `on_budget(flow,
    link, bytes_per_s)`: called at each change of a cap, None for uncapped; the place to set a network card's
    service level or rate limit for traffic that does not pass here.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        chunk_nbytes: int = CHUNK_NBYTES,
        on_budget: Callable[[str, str, float | None], None] | None = None,
    ) -> None:
        if backend is None:
            from umsh.fabric.cuda import CudaBackend

            backend = CudaBackend()
        self.backend = backend
        self.core = Core(backend, chunk_nbytes)
        self.core.windows.on_budget = on_budget
        self.dispatcher = dispatcher(self.core)
        self.paced = False
        self.last_link: dict[str, str] = {}
        self._plain_streams: dict[str, Stream] = {}
        self._executor: ThreadPoolExecutor | None = None
        self.stager = Stager(self.core, self._in_background, self.dispatcher.kick)
        self.sampler: Sampler | None = None
        self._closed = False
        _open.add(self)

    def flow(
        self,
        name: str,
        *,
        priority: int | None = None,
        target_ms: float | None = None,
        floor: float | None = None,
        min_gbps: float | None = None,
        max_gbps: float | None = None,
    ) -> Flow:
        """Register a flow. Names are unique; raises `NeedError` for a name in use or a value out of range.

        `priority`: 0 is most urgent; more urgent classes go first (default 1). `target_ms`: each transfer
        should take no longer, from the moment it can start; missed goals take bandwidth from less urgent
        flows. `floor`: share of a link that a backlogged flow gets at least, after `FLOOR_HORIZON_S` (default
        0.01, so that nothing starves). `min_gbps`: gigabytes (1e9 bytes) per second that it gets at least, at
        once. `max_gbps`: the most it gets, even on an idle link.
        """
        stated = any(value is not None for value in (priority, target_ms, floor, min_gbps, max_gbps))
        flow = Flow(
            self,
            name,
            DEFAULT_PRIORITY if priority is None else priority,
            target_ms,
            DEFAULT_FLOOR if floor is None else floor,
            min_gbps or 0.0,
            max_gbps,
        )
        self._check_flow(flow)
        with self.core.lock:
            self.core.flows[name] = flow
            self.paced = self.paced or stated
        return flow

    @contextmanager
    def quiet(self, link: str, timeout_s: float = 5.0) -> Iterator[None]:
        """Keep `link` free of the fabric's copies inside the block, for code that is not a flow.

        Waits at most `timeout_s` for chunks in flight; raises `WaitTimeout` and opens the link again if they
        do not land.
        """
        engine = self.core.engine(parse(link).name)
        with self.core.lock:
            engine.held += 1
        try:
            self._drain(engine.name, timeout_s)
            yield
        finally:
            with self.core.lock:
                engine.held = max(0, engine.held - 1)
            self.dispatcher.kick()

    def watch(self, sources: list[Source]) -> Sampler:
        """Read `sources` (`umsh.fabric.nvml.sources()`) in a thread, so that the policy knows what others
        take."""
        core = self.core

        def own(link: str) -> int:
            engine = core.engines.get(link)
            return sum(queue.served_nbytes for queue in engine.queues.values()) if engine else 0

        def capacity(link: str) -> float | None:
            engine = core.engines.get(link)
            return engine.pacer.capacity_bps if engine else None

        estimator = Estimator(own, capacity)
        core.windows.foreign_bps = lambda link: estimator.foreign_bps(link, self.backend.now())
        self.sampler = Sampler(sources, estimator, self.backend.now).start()
        return self.sampler

    def stats(self) -> dict[str, Any]:
        """Counters: `{"label", "flows": {name: ...}, "links": {name: ...}}`; bytes, bytes/s, ms."""
        return words.stats(self)

    def explain(self, flow: str) -> str:
        """What `flow` gets and why, in sentences."""
        if flow not in self.core.flows:
            raise NeedError(
                f"There is no flow {flow!r}.", "", f"Flows: {', '.join(sorted(self.core.flows)) or 'none'}."
            )
        return words.explain(self, self.core.flows[flow])

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Hand everything queued to the links unpaced, wait for it at most `timeout_s`, stop the thread."""
        if self._closed:
            return
        self._closed = True
        if self.sampler is not None:
            self.sampler.stop()
        self.core.release("the fabric was closed")
        deadline = self.backend.now() + timeout_s
        self.dispatcher.close(timeout_s)
        while not self.core.idle() and self.core.lost is None and self.backend.now() < deadline:
            self.core.step()
            if not self._pass_time(POLL_S):
                break
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        if self.core.idle() and self.core.lost is None:
            self.stager.close()
        _open.discard(self)

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def plain_stream(self, link: Link) -> Stream:
        """The stream for copies that nobody paces and that were given none: internal to the fabric."""
        if link.name not in self._plain_streams:
            self._plain_streams[link.name] = self.backend.open_stream(link.device)
        return self._plain_streams[link.name]

    def _check_flow(self, flow: Flow) -> None:
        wrong = None
        if flow.name in self.core.flows:
            wrong = f"A flow {flow.name!r} exists already."
        elif flow.priority < 0:
            wrong = f"Priority {flow.priority} is negative; 0 is most urgent."
        elif flow.target_ms is not None and flow.target_ms <= 0:
            wrong = f"A target of {flow.target_ms} ms cannot be met."
        elif not 0 <= flow.floor < 1 or flow.min_gbps < 0:
            wrong = f"Floor {flow.floor} must be in [0, 1) and min_gbps {flow.min_gbps} not negative."
        elif flow.max_gbps is not None and flow.max_gbps <= max(0.0, flow.min_gbps):
            wrong = f"max_gbps {flow.max_gbps} must be above 0 and above min_gbps {flow.min_gbps}."
        elif sum(other.floor for other in self.core.flows.values()) + flow.floor > 1:
            wrong = "The floors of all flows add up to more than a whole link."
        if wrong is not None:
            raise NeedError(
                wrong, "The flow was not registered.", "Change the value, or use the flow there is."
            )

    def _drain(self, link: str, timeout_s: float) -> None:
        engine = self.core.engine(link)
        deadline = self.backend.now() + timeout_s
        while True:
            self.core.step()
            if not engine.in_flight:
                return
            if self.backend.now() >= deadline or not self._pass_time(POLL_S):
                raise WaitTimeout(
                    f"Chunks on {link} had not landed after {timeout_s:g} s.",
                    "The link was opened again.",
                    "See whether the device hangs.",
                )

    def _pass_time(self, seconds: float) -> bool:
        """Let time go by; False when nothing can happen any more (a virtual clock with nothing to do)."""
        if isinstance(self.backend, VirtualBackend):
            return self.backend.clock.step()
        import time

        time.sleep(seconds)
        return True

    def _in_background(self, call: Callable[[], None]) -> object:
        if isinstance(self.backend, VirtualBackend):
            call()
            return None
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="umsh-fabric-stage")
        return self._executor.submit(call)


_open: weakref.WeakSet[Fabric] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Transfers in flight at interpreter exit are finished, not dropped."""
    for fabric in list(_open):
        fabric.close()
