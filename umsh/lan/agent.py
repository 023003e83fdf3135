"""The server's side: what its daemon thread keeps of running tasks, and the heartbeats it makes of that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from umsh.lan.cluster import Placement, Request, Server, Stage
from umsh.lan.errors import LanInputError, RegistryError, check_number
from umsh.lan.heartbeat import TASKS_MAX, Heartbeat, Progress


@dataclass(slots=True)
class _Task:
    request: Request
    stage: Stage
    warm: bool
    sent_bytes: float = 0.0
    total_bytes: float = 0.0
    syncs: int = 0
    syncs_total: int = 1


@dataclass(slots=True)
class Agent:
    """Bookkeeping of one server. The remoting server reports bytes and synchronise calls; thread-safe.

    `clock` is monotonic seconds; `boot` has to grow with each start of the daemon.
    """

    server: Server
    clock: Callable[[], float]
    boot: int
    utilisation: Callable[[], float] = lambda: 0.0
    _seq: int = 0
    _tasks: dict[int, _Task] = field(default_factory=dict)
    _cached: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, placement: Placement) -> None:
        """Take a placed request; RegistryError if it is another server's, runs already, or TASKS_MAX run."""
        if placement.server != self.server.name:
            raise RegistryError(
                f"request {placement.request.id} is for {placement.server!r}, this is {self.server.name!r}.",
                "It was not started.",
                "Send it there.",
            )
        with self._lock:
            if placement.request.id in self._tasks or len(self._tasks) >= TASKS_MAX:
                raise RegistryError(
                    f"request {placement.request.id} runs already, or {TASKS_MAX} tasks do.",
                    "It was not started again.",
                    "Nothing to do for a repeated message.",
                )
            warm = placement.request.type in self._cached
            self._tasks[placement.request.id] = _Task(placement.request, "infer" if warm else "load", warm)

    def progress(
        self, request: int, sent_bytes: float, total_bytes: float, syncs: int, syncs_total: int
    ) -> None:
        """Report bytes sent and synchronise calls; the first call of an inference ends its loading."""
        check_number(sent_bytes, "bytes sent")
        check_number(total_bytes, "total bytes")
        check_number(syncs, "synchronise calls")
        check_number(syncs_total, "total synchronise calls", 1)
        with self._lock:
            task = self._known(request)
            task.sent_bytes, task.total_bytes = sent_bytes, total_bytes
            task.syncs, task.syncs_total = syncs, syncs_total
            if task.stage == "load" and (syncs > 0 or sent_bytes >= total_bytes):
                task.stage = "infer"
                self._cached[task.request.type] = self.clock()

    def end(self, request: int) -> None:
        """A task ended; its weights stay cached."""
        with self._lock:
            task = self._known(request)
            del self._tasks[request]
            if task.request.type in self._cached:
                self._cached[task.request.type] = self.clock()

    def evicted(self, name: str) -> None:
        """The remoting server dropped the weights of a type."""
        with self._lock:
            self._cached.pop(name, None)

    def heartbeat(self) -> Heartbeat:
        """The next message."""
        with self._lock:
            self._seq += 1
            now_s = self.clock()
            return Heartbeat(
                server=self.server.name,
                boot=self.boot,
                seq=self._seq,
                sent_s=now_s,
                gpu=self.server.gpu,
                memory_mb=self.server.memory_mb,
                links=self.server.links,
                utilisation=min(1.0, max(0.0, self.utilisation())),
                tasks=tuple(_progress(task) for task in self._tasks.values()),
                cached={name: max(0.0, now_s - used) for name, used in self._cached.items()},
            )

    def _known(self, request: int) -> _Task:
        task = self._tasks.get(request)
        if task is None:
            raise LanInputError(
                f"request {request} does not run here.", "Nothing changed.", "Start it first."
            )
        return task


def _progress(task: _Task) -> Progress:
    request = task.request
    return Progress(
        request.id,
        request.client,
        request.type,
        task.stage,
        request.submit_s,
        task.sent_bytes,
        task.total_bytes,
        task.syncs,
        task.syncs_total,
        task.warm,
    )
