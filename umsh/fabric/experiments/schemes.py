"""Ways to share a link: raw streams, and the fabric set up as a baseline or as itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from umsh.fabric.backend import Backend, Segments
from umsh.fabric.experiments.lab import Lab, RawTicket, Ticket
from umsh.fabric.fabric import Fabric
from umsh.fabric.flow import Flow

CHUNK_NBYTES = 8 << 20
GAP_S = 2e-6


@dataclass(frozen=True)
class Role:
    """What a flow is to its application: background work, or urgent with a goal in ms."""

    name: str
    urgent: bool = False
    target_ms: float | None = None


class Scheme(Protocol):
    """One way to share. `copy` returns at once."""

    name: str

    def copy(self, role: Role, link: str, dst: int, src: int, nbytes: int, after: Any = None) -> Ticket:
        """Copy for `role`; ordered after the work on stream `after`, or after nothing."""

    def close(self) -> None: ...


class Streams:
    """CUDA as it comes: a stream a role; stream priority, chunks, gaps between chunks."""

    def __init__(
        self, lab: Lab, name: str, *, priority: bool = False, chunk_nbytes: int = 0, gap: bool = False
    ) -> None:
        self.name, self._lab = name, lab
        self._priority, self._chunk, self._gap = priority, chunk_nbytes, gap
        self._streams: dict[tuple[str, str], Any] = {}

    def copy(self, role: Role, link: str, dst: int, src: int, nbytes: int, after: Any = None) -> Ticket:
        backend: Backend = self._lab.backend
        if (role.name, link) not in self._streams:
            level = -5 if self._priority and role.urgent else 0
            self._streams[role.name, link] = backend.open_stream(0, level)
        stream = self._streams[role.name, link]
        if after is not None:
            backend.wait_event(stream, backend.record(after))
        step = self._chunk or nbytes
        for at in range(0, nbytes, step):
            backend.copy(link, stream, Segments([dst + at], [src + at], [min(step, nbytes - at)]))
            if self._gap:
                self._lab.compute(stream, GAP_S)
        return RawTicket(backend, backend.record(stream))

    def close(self) -> None:
        return None


class Paced:
    """The fabric, with its loop and classes, or reduced to one of the baselines."""

    def __init__(
        self,
        lab: Lab,
        name: str,
        *,
        classes: bool = True,
        goals: bool = True,
        split: float | None = None,
        delay: bool = False,
        floor: float | None = None,
        chunk_nbytes: int = CHUNK_NBYTES,
    ) -> None:
        self.name, self._lab = name, lab
        self._classes, self._goals, self._split, self._delay, self._floor = (
            classes,
            goals,
            split,
            delay,
            floor,
        )
        self.fabric = Fabric(lab.backend, chunk_nbytes=chunk_nbytes)

    def copy(self, role: Role, link: str, dst: int, src: int, nbytes: int, after: Any = None) -> Ticket:
        flow = self._flow(role, link)
        if (
            self._delay and role.urgent
        ):  # the seed's action: hold the rest back while the urgent one should last
            capacity = self.fabric.core.engine(link).pacer.capacity_bps
            for other in self.fabric.core.flows.values():
                if other is not flow:
                    other.delay(ms=nbytes / capacity * 1e3)
        return flow.copy(dst, src, nbytes=nbytes, stream=after, ordered=after is not None)

    def close(self) -> None:
        self.fabric.close()

    def _flow(self, role: Role, link: str) -> Flow:
        flows = self.fabric.core.flows
        if role.name not in flows:
            background = not role.urgent
            capacity = self.fabric.core.engine(link).pacer.capacity_bps
            self.fabric.flow(
                role.name,
                priority=(2 if background else 0) if self._classes else 1,
                target_ms=role.target_ms if self._goals else None,
                floor=self._floor if background and self._classes else 0.0,
                max_gbps=self._split * capacity / 1e9 if self._split is not None and background else None,
            )
        return flows[role.name]


Make = Callable[[Lab], Scheme]

RAW: dict[str, Make] = {
    "plain streams": lambda lab: Streams(lab, "plain streams"),
    "stream priority": lambda lab: Streams(lab, "stream priority", priority=True),
    "naive chunks": lambda lab: Streams(lab, "naive chunks", chunk_nbytes=CHUNK_NBYTES),
    "chunks with gaps": lambda lab: Streams(lab, "chunks with gaps", chunk_nbytes=CHUNK_NBYTES, gap=True),
}
FAIR: Make = lambda lab: Paced(lab, "fair sharing", classes=False, goals=False)  # noqa: E731
DELAY: Make = lambda lab: Paced(lab, "delay injection", classes=False, goals=False, delay=True)  # noqa: E731
FABRIC: Make = lambda lab: Paced(lab, "fabric")  # noqa: E731
LOOP: Make = lambda lab: Paced(lab, "loop without classes", classes=False)  # noqa: E731


def static_split(share: float) -> Make:
    """Background limited to `share` of the link, always; swept offline by who uses it."""
    return lambda lab: Paced(lab, f"static {share:.0%}", classes=False, goals=False, split=share)
