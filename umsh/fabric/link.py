"""Links: names such as `h2d:0`, `d2h:0` and `p2p:0>1`, and which of them a copy takes."""

from __future__ import annotations

import re
from typing import NamedTuple

from umsh.errors import NeedError
from umsh.fabric.backend import Pointer

_NAME = re.compile(r"(h2d|d2h):(\d+)|p2p:(\d+)>(\d+)")


class Link(NamedTuple):
    """One direction of one connection. `peer` is the receiving device of a peer-to-peer link, else None."""

    kind: str
    device: int
    peer: int | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.device}" + ("" if self.peer is None else f">{self.peer}")


def parse(name: str) -> Link:
    """The link called `name`; raises `NeedError` for anything else."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise NeedError(
            f"{name!r} is no link.",
            "Nothing was changed.",
            "Use h2d:<device>, d2h:<device> or p2p:<from>><to>.",
        )
    if match[1]:
        return Link(match[1], int(match[2]))
    return Link("p2p", int(match[3]), int(match[4]))


def between(dst: Pointer, src: Pointer) -> Link:
    """The link that a copy from `src` to `dst` takes.

    Raises `NeedError` for host to host and for copies within one device: neither crosses a link of the
    server.
    """
    if dst.kind == "device" and src.kind == "device" and dst.device != src.device:
        return Link("p2p", _device(src), _device(dst))
    if dst.kind == "device" and src.kind != "device":
        return Link("h2d", _device(dst))
    if src.kind == "device" and dst.kind != "device":
        return Link("d2h", _device(src))
    where = "one device" if dst.kind == "device" else "host memory"
    raise NeedError(
        f"Source and destination both lie in {where}.",
        "The copy crosses no link, so there is nothing to schedule; nothing was copied.",
        "Copy it with the framework, or check the two arguments.",
    )


def _device(pointer: Pointer) -> int:
    assert pointer.device is not None
    return pointer.device
