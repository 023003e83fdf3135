"""vLLM's offloading handler over a flow: stores and loads of KV blocks as scheduled batches.

Follows the published interface (vllm/v1/kv_offload/worker/worker.py): `transfer_async(job_id, spec) -> bool`,
`get_finished() -> [result]`, `wait(job_ids)`; a spec is a pair of objects with `block_ids`, a result has
`job_id, success, transfer_size, transfer_time, transfer_type`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from umsh.fabric.flow import Flow
from umsh.fabric.transfer import DONE, Transfer


class BlockIds(Protocol):
    """What a load or store spec carries: int64 block numbers."""

    block_ids: Any


class Result(NamedTuple):
    """Fields of vLLM's `TransferResult`, in its order."""

    job_id: int
    success: bool
    transfer_size: int | None
    transfer_time: float | None
    transfer_type: tuple[str, str] | None


class FlowHandler:
    """One direction between two pools of equal blocks.

    `src`, `dst`: base addresses, one a layer or tensor; block `b` of tensor `i` lies at `base[i] + b *
    nbytes`. `stream()` gives the stream that writes (a store) or reads (a load) the device's blocks now.
    """

    def __init__(
        self,
        flow: Flow,
        src: Iterable[int],
        dst: Iterable[int],
        block_nbytes: int,
        kind: tuple[str, str],
        stream: Callable[[], Any],
    ) -> None:
        self._flow, self._block_nbytes, self._kind, self._stream = flow, block_nbytes, kind, stream
        self._src, self._dst = (np.fromiter(side, np.int64) for side in (src, dst))
        self._jobs: dict[int, Transfer] = {}
        self._finished: list[Result] = []
        self._lock = threading.Lock()

    def transfer_async(self, job_id: int, spec: tuple[BlockIds, BlockIds]) -> bool:
        """Queue the job after the work on `stream()`; returns at once."""
        sources, targets = (np.asarray(side.block_ids, np.int64) for side in spec)
        offsets = [(base[:, None] + ids * self._block_nbytes).reshape(-1)
                   for base, ids in ((self._src, sources), (self._dst, targets))]  # fmt: skip
        sizes = np.full(len(offsets[0]), self._block_nbytes, np.int64)
        copy = self._flow.copy_many(offsets[1], offsets[0], sizes, stream=self._stream())
        self._jobs[job_id] = copy
        copy.add_done_callback(lambda done: self._note(job_id, done))
        return True

    def get_finished(self) -> list[Result]:
        """Jobs that ended since the last call."""
        with self._lock:
            finished, self._finished = self._finished, []
        for result in finished:
            self._jobs.pop(result.job_id, None)
        return finished

    def wait(self, job_ids: set[int], timeout_s: float = 60.0) -> None:
        """Block until the jobs have ended; a failed one raises, and is reported by `get_finished` as well."""
        for job_id in job_ids:
            copy = self._jobs.get(job_id)
            if copy is not None:
                copy.wait(timeout_s)

    def _note(self, job_id: int, copy: Transfer) -> None:
        with self._lock:
            success = copy.state == DONE
            self._finished.append(Result(job_id, success, copy.nbytes, copy.latency_s, self._kind))
