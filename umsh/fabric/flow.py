"""A flow: a named stream of copies with one urgency and one goal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from umsh.errors import NeedError
from umsh.fabric.memory import extent
from umsh.fabric.pieces import Int64s, Pieces, plan, single
from umsh.fabric.starts import link_of, start, start_checkpoint
from umsh.fabric.transfer import Transfer

if TYPE_CHECKING:
    from umsh.fabric.fabric import Fabric

LATENCIES_KEPT = 1024
FLOOR_HORIZON_S = 0.1


class Flow:
    """Made by `Fabric.flow`. `priority` (0 is most urgent), `target_ms`, `floor` and `min_gbps` may be
    changed at any time and take effect on queued copies."""

    def __init__(
        self,
        fabric: Fabric,
        name: str,
        priority: int,
        target_ms: float | None,
        floor: float,
        min_gbps: float,
        max_gbps: float | None = None,
    ) -> None:
        self.fabric, self.name = fabric, name
        self.priority, self.target_ms, self.floor = priority, target_ms, floor
        self.min_gbps, self.max_gbps = min_gbps, max_gbps
        self.floor_horizon_s = FLOOR_HORIZON_S
        self.paused = False
        self.not_before_s = float("-inf")
        self.latencies_s: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self.transfers = self.misses = 0
        self.notes: list[str] = []

    @property
    def has_goal(self) -> bool:
        return self.target_ms is not None or self.min_gbps > 0

    def copy(
        self,
        dst: Any,
        src: Any,
        stream: object = None,
        *,
        nbytes: int | None = None,
        key: object = None,
        ordered: bool = True,
    ) -> Transfer:
        """Copy `src` to `dst` over whatever link lies between them; returns at once.

        `dst`, `src`: contiguous NumPy, CuPy or PyTorch arrays, umsh regions, writable buffers, or integer
        addresses with `nbytes`. The copy starts after all work submitted so far to `stream`: the producer of
        the source, and earlier readers of the destination. Without a stream, after all work submitted so far
        to the device. `ordered=False` drops that order and is safe only when both ends are known to be quiet.

        `key` names the content ("these bytes to this place"): while a copy with the same key is in flight,
        the call joins it instead of copying again, and lends it this flow's urgency if that is greater.

        Pageable host memory is staged through pinned buffers, which `explain` says. On a stream that is being
        captured, a plain copy is captured. Raises `NeedError` for sizes that differ, strides, host-to-host
        and same-device copies; `DeviceError` once the device is lost.
        """
        to, of = extent(dst, write=True), extent(src)
        sizes = {size for size in (to.nbytes, of.nbytes, nbytes) if size is not None}
        if nbytes is not None and all(size is None or size >= nbytes for size in (to.nbytes, of.nbytes)):
            sizes = {nbytes}
        if len(sizes) != 1:
            raise NeedError(
                "No size was given." if not sizes else f"Sizes differ: {sorted(sizes)} bytes.",
                "Nothing was copied.",
                "Give two arrays of one size, or nbytes= no larger than either.",
            )
        return start(self, single(to.address, of.address, sizes.pop()), (dst, src), stream, key, ordered)

    def copy_many(
        self,
        dsts: Sequence[Any] | Int64s,
        srcs: Sequence[Any] | Int64s,
        sizes: Sequence[int] | Int64s | None = None,
        stream: object = None,
        *,
        key: object = None,
        ordered: bool = True,
    ) -> Transfer:
        """Copy many pieces over one link as one transfer; pieces that adjoin at both ends are merged.

        `dsts`, `srcs`: integer addresses (a NumPy int64 array is fastest) with `sizes` in bytes, or arrays as
        in `copy` with `sizes` left out. Raises as `copy` does, and `NeedError` for destinations that overlap.
        """
        owners = (dsts, srcs)
        if sizes is None:
            ends = [(extent(dst, write=True), extent(src)) for dst, src in zip(dsts, srcs, strict=True)]
            if any(to.nbytes is None or to.nbytes != of.nbytes for to, of in ends):
                raise NeedError(
                    "Sizes of pieces differ or are missing.", "Nothing was copied.", "Give sizes=."
                )
            dsts, srcs = [to.address for to, _ in ends], [of.address for _, of in ends]
            sizes = [to.nbytes or 0 for to, _ in ends]
        return start(self, plan(dsts, srcs, sizes), owners, stream, key, ordered)

    def checkpoint(self, nbytes: int, link: str | None = None, timeout_s: float = 60.0) -> None:
        """Yield point for code that copies by itself: blocks until this flow may put `nbytes` on `link`.

        `link` defaults to the one this flow used last. The bytes count against the flow's share, and the link
        as taken for as long as they need at its capacity. Raises `WaitTimeout` after `timeout_s`.
        """
        if nbytes > 0:
            start_checkpoint(self, nbytes, link).wait(timeout_s)

    def report(self, nbytes: int, seconds: float, link: str | None = None) -> None:
        """Tell what a copy made elsewhere took, so that the policy can hold this flow to its `target_ms`.

        The flow's next windows are judged by it; its bytes count as carried by `link`.
        """
        self.fabric.core.report(self, nbytes, seconds, link_of(self, link))

    def pause(self) -> None:
        """Submit nothing more of this flow until `resume`; chunks in flight land."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.fabric.dispatcher.kick()

    def delay(self, ms: float) -> None:
        """Submit nothing of this flow for the next `ms` milliseconds."""
        self.not_before_s = self.fabric.backend.now() + ms / 1e3
        self.fabric.dispatcher.kick()

    def note_once(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def note_latency(self, latency_s: float) -> None:
        """Count a finished transfer: internal to the fabric."""
        self.transfers += 1
        self.latencies_s.append(latency_s)
        if self.target_ms is not None and latency_s > self.target_ms / 1e3:
            self.misses += 1

    def latency_ms(self, percentile: float) -> float | None:
        """Percentile over the last `LATENCIES_KEPT` transfers, in ms; None before the first."""
        if not self.latencies_s:
            return None
        return float(np.percentile(np.fromiter(self.latencies_s, float), percentile)) * 1e3

    def empty(self, now_s: float) -> Transfer:
        """A transfer of nothing, already done."""
        none = np.empty(0, np.int64)
        transfer = Transfer(self, "", Pieces(none, none, none), now_s, None, 0, None)
        transfer.finish("done", now_s)
        return transfer
