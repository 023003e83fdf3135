"""The CPU's half of the write and read methods: publish what it wrote, refresh what it will read."""

from __future__ import annotations

from collections.abc import Callable

from umsh.native import lib

Range = Callable[[int, int], None]  # (address, nbytes)
Copy = Callable[[int, int, int], None]  # (to, from, nbytes)


def _fence(address: int, nbytes: int) -> None:
    lib.umsh_fence()


# Paper section 4.1. Memory filled in place was written by ordinary stores, so write-bypass publishes
# it by write-back of its lines. RB has no CPU form in user space; agents report it as absent.
PUBLISH: dict[str, Range] = {
    "WA": _fence,
    "WF": lib.umsh_writeback_lines,
    "WBp": lib.umsh_writeback_lines,
    "copy": _fence,
}
REFRESH: dict[str, Range] = {"RA": _fence, "RI": lib.umsh_invalidate_lines, "RB": _fence, "copy": _fence}
# Methods that copy better than an ordinary store loop followed by PUBLISH.
COPY_IN: dict[str, Copy] = {"WBp": lib.umsh_copy_bypass}
