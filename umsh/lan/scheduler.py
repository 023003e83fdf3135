"""The scheduler loop as a state machine without a clock or network: queue, tracker, policy, correction."""

from __future__ import annotations

from umsh.lan.cluster import Decision, Request
from umsh.lan.correct import Correction, saw_inference, saw_utilisation
from umsh.lan.errors import QueueFullError
from umsh.lan.heartbeat import Heartbeat
from umsh.lan.screen import QUEUE_MAX, Policy
from umsh.lan.tracker import Tracker

ENDED_MAX = 100_000


class Scheduler:
    """What `umsh-sched serve` and the simulator both run. Call `step` about once a second (paper 7.6)."""

    def __init__(
        self, policy: Policy, tracker: Tracker, correct: bool = False, queue_max: int = QUEUE_MAX
    ) -> None:
        self.policy = policy
        self.tracker = tracker
        self.correct = correct
        self.queue_max = queue_max
        self.queue: dict[int, Request] = {}
        self.correction = Correction()
        self.requeued = 0
        self._where: dict[int, tuple[str, str]] = {}
        self._ended: dict[int, None] = {}  # the last ENDED_MAX, oldest first: late heartbeats may list them

    def submit(self, request: Request) -> None:
        """Queue a request; QueueFullError at the bound."""
        if len(self.queue) >= self.queue_max:
            raise QueueFullError(
                f"{len(self.queue)} requests wait.", "The request was not taken.", "Try again later."
            )
        self.queue[request.id] = request

    def beat(self, beat: Heartbeat, now_s: float) -> None:
        """Take a heartbeat and learn from its utilisation."""
        self._requeue(self.tracker.beat(beat, now_s), beat.server)
        for task in beat.tasks:
            if self.queue.pop(task.request, None) is not None:  # its server was only silent
                self._where[task.request] = beat.server, task.type
        if self.correct:
            gpu = self.tracker.server(beat.server).gpu
            inferring = []
            for name in self.tracker.inferring(beat.server):
                cell = self.tracker.types[name].cells.get(gpu)
                if cell is not None:
                    inferring.append(((name, gpu), cell.compute))
            self.correction = saw_utilisation(self.correction, beat.utilisation, inferring)

    def ended(self, request: int, now_s: float, alone_s: float | None = None) -> None:
        """A task ended; `alone_s` is its inference time if its GPU was never saturated meanwhile."""
        self.queue.pop(request, None)  # queued again although it went on: its server was only silent
        self._close(request)
        found = self._where.pop(request, None)
        if found is None:
            return
        server, name = found
        self.tracker.ended(server, request, now_s)
        gpu = self.tracker.server(server).gpu
        cell = self.tracker.types[name].cells.get(gpu)
        if self.correct and alone_s is not None and cell is not None:
            self.correction = saw_inference(self.correction, (name, gpu), cell.infer_s, alone_s)

    def lost(self, server: str, now_s: float, silent: bool = False) -> list[Request]:
        """A server left or fell silent: its requests are queued again, with their first submission time."""
        held = self.tracker.leave(server, now_s, silent)
        self._requeue(held, server)
        self._where = {key: where for key, where in self._where.items() if where[0] != server}
        return held

    def _requeue(self, requests: list[Request], server: str) -> None:
        """Queue again what `server` held, except what ended meanwhile or runs elsewhere by now."""
        for request in requests:
            where = self._where.get(request.id, (server, ""))[0]
            if request.id in self._ended or where != server:
                continue
            self._where.pop(request.id, None)
            self.queue[request.id] = request
            self.requeued += 1

    def step(self, now_s: float) -> Decision:
        """Drop silent servers, run the policy over the queue, remember what it placed."""
        for name in self.tracker.gone(now_s):
            self.lost(name, now_s, silent=True)
        decision = self.policy(self.tracker.state(), list(self.queue.values()), now_s, self.correction)
        for placement in decision.placed:
            del self.queue[placement.request.id]
            self._where[placement.request.id] = placement.server, placement.request.type
            self.tracker.placed(placement, now_s)
        for request, _ in decision.refused:
            del self.queue[request.id]
            self._close(request.id)
        return decision

    def _close(self, request: int) -> None:
        self._ended[request] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
