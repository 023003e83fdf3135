"""Mooncake-style batch writes under a flow: the engine copies by itself, the flow says when and hears how
long.

Follows the published Python interface of its transfer engine: `batch_transfer_async_write(target, buffers,
peer_buffer_addresses, lengths) -> batch id` (0 or less on failure) and `get_batch_transfer_status([ids])`
(0 once all have ended, negative on failure).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from umsh.errors import DeviceError, NeedError
from umsh.fabric.flow import Flow

BATCH_NBYTES = 8 << 20


class Engine(Protocol):
    """The two calls used."""

    def batch_transfer_async_write(
        self, target: str, buffers: list[int], peer_buffer_addresses: list[int], lengths: list[int]
    ) -> int: ...
    def get_batch_transfer_status(self, batch_ids: list[int]) -> int: ...


class Batch(NamedTuple):
    """Handed out by `write`: the engine's ids, bytes, and when the first was submitted."""

    ids: tuple[int, ...]
    nbytes: int
    began_s: float


class PacedEngine:
    """Submits in parts of about 8 MiB, each after a `checkpoint` of the flow on `link`."""

    def __init__(self, engine: Engine, flow: Flow, link: str = "d2h:0") -> None:
        self._engine, self._flow, self._link = engine, flow, link

    def write(self, target: str, buffers: list[int], peers: list[int], lengths: list[int]) -> Batch:
        """Submit all; blocks while more urgent flows need the link. Raises `DeviceError` if a part fails."""
        if not len(buffers) == len(peers) == len(lengths):
            raise NeedError(
                f"{len(buffers)} buffers, {len(peers)} peers and {len(lengths)} lengths do not match.",
                "Nothing was submitted.",
                "Give one of each a piece.",
            )
        began_s = self._flow.fabric.backend.now()
        ids: list[int] = []
        first = 0
        while first < len(lengths):
            last, nbytes = first, 0
            while last < len(lengths) and (last == first or nbytes + lengths[last] <= BATCH_NBYTES):
                nbytes += lengths[last]
                last += 1
            self._flow.checkpoint(nbytes, self._link)
            part: Any = (buffers[first:last], peers[first:last], lengths[first:last])
            batch_id = self._engine.batch_transfer_async_write(target, *part)
            if batch_id <= 0:
                raise DeviceError(
                    f"The engine refused pieces {first} to {last - 1} with {batch_id}.",
                    f"{len(ids)} parts before them were submitted.",
                    "See the engine's log.",
                )
            ids.append(batch_id)
            first = last
        return Batch(tuple(ids), sum(lengths), began_s)

    def finished(self, batch: Batch) -> bool:
        """Ask once; when ended, report the time to the flow. Raises `DeviceError` if the batch failed."""
        status = self._engine.get_batch_transfer_status(list(batch.ids))
        if status < 0:
            raise DeviceError(f"The batch failed: {status}.", "Its target is incomplete.", "Submit again.")
        if status > 0:
            return False
        seconds = self._flow.fabric.backend.now() - batch.began_s
        self._flow.report(0, seconds, self._link)  # checkpoint has counted the bytes
        return True
