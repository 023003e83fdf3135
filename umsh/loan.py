"""Loan: what one turn lent out, where it began, and what of it still lives."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from umsh.errors import RegionBusy
from umsh.views import ClosedArray, ClosedGpuView, RegionArray


class Loan:
    """The array or GPU view of one turn, and how many references to it are not the turn's own.

    NumPy points every view of `lent` at `root`, so references to root are live views. References
    to `lent` itself are names, memoryviews and foreign tensors, of which one name is allowed.
    """

    __slots__ = ("_code", "_held_at_end", "_lent_refs", "_line", "_root_refs", "agent", "lent", "root")

    def __init__(self, agent: str, caller: FrameType) -> None:
        self.agent = agent
        self._code: CodeType = caller.f_code
        self._line = caller.f_lineno
        self.root: Any = None
        self.lent: Any = None
        self._held_at_end = 0

    def lend(self, root: Callable[[], Any], lent: Callable[[Any], Any]) -> Any:
        """Make what is lent and note the references that are our own."""
        self.root = root()
        self.lent = lent(self.root)
        self._held_at_end = 0
        self._root_refs = sys.getrefcount(self.root)
        self._lent_refs = sys.getrefcount(self.lent)
        return self.lent

    def close(self) -> None:
        """Take it back: the lent object itself raises TurnError from now on. Idempotent."""
        if self.lent is None or isinstance(self.lent, ClosedArray | ClosedGpuView):
            return
        self._held_at_end = sys.getrefcount(self.lent) - self._lent_refs
        if isinstance(self.lent, RegionArray):
            self.lent.setflags(write=False)
            self.lent.__class__ = ClosedArray
        else:
            self.lent.__class__ = ClosedGpuView

    def live(self) -> int:
        """How many arrays, buffers or tensors still hold what was lent, apart from cyclic garbage.

        One reference to `lent` at the end of its block is its name. With more, one that is left may
        be the name or a tensor: no one can tell, so it counts.
        """
        if self.lent is None or not self._held():
            return 0
        gc.collect()  # frameworks leave arrays in reference cycles: an exception, a compiled kernel
        return self._held()

    def _held(self) -> int:
        views = sys.getrefcount(self.root) - self._root_refs
        held = sys.getrefcount(self.lent) - self._lent_refs
        if held <= 1 and self._held_at_end <= 1:
            return views
        return views + max(held - 1, min(held, 1))

    def open_error(self) -> RegionBusy:
        """The error of a turn or verb that begins while this turn is open."""
        return RegionBusy(
            f"The {self._turn()} is still open.",
            "The region was not handed over.",
            "End that `with` block first.",
        )

    def live_error(self, live: int) -> RegionBusy:
        """The error of a hand-over while `live` arrays or tensors of this turn are still held."""
        noun = "array, view, buffer or tensor" if live == 1 else "arrays, views, buffers or tensors"
        return RegionBusy(
            f"{live} {noun} of the {self._turn()} still live.",
            "The region was not handed over.",
            "Delete them and the block's own array (`del`), or copy what you keep: numpy.array(view).",
        )

    def _turn(self) -> str:
        return f"{self.agent} turn that began at {self._code.co_filename}:{self._line}"


def verb_open_error() -> RegionBusy:
    """The error of a turn or verb that begins while another thread is in a verb of the region."""
    return RegionBusy(
        "Another thread is in write, read or unbind of this region.",
        "The region was not handed over.",
        "Let it finish, or order the threads.",
    )
