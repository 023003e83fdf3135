"""What the fabric needs from a machine: clock, streams, copies, events and whose a pointer is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

Stream = Any
"""A stream of the backend: a driver handle (CUDA) or a model stream."""
Event = Any
"""A point in a stream, asked for with `done`."""


class Segments(NamedTuple):
    """One chunk: parallel lists of destination address, source address and bytes."""

    dsts: list[int]
    srcs: list[int]
    sizes: list[int]


class Pointer(NamedTuple):
    """Whose an address is: kind `device`, `pinned` or `pageable`; the allocation it lies in."""

    kind: str
    device: int | None
    start: int
    nbytes: int


class Backend(Protocol):
    """The handful of operations both backends offer. Driver failures raise `DeviceError`."""

    label: str
    """`measured` or `modelled`: where figures from this backend may stand."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""

    def pointer(self, address: int, nbytes: int) -> Pointer:
        """Whose `address` is. Memory the driver does not know is pageable."""

    def stream(self, given: object) -> Stream:
        """The backend's stream for what a caller gave: a handle, or an object that has one."""

    def current_stream(self, owner: object) -> Stream | None:
        """The stream that the framework owning `owner` works on now, None if it has no such notion."""

    def open_stream(self, device: int, priority: int = 0) -> Stream:
        """A new stream that does not synchronise with the default stream."""

    def capturing(self, stream: Stream) -> bool:
        """True while `stream` is being captured into a graph."""

    def copy(self, link: str, stream: Stream, segments: Segments) -> None:
        """Enqueue the pieces on `stream`; returns at once. Order between the pieces is free."""

    def record(self, stream: Stream) -> Event:
        """An event that is done once everything enqueued on `stream` so far is."""

    def record_device(self, device: int) -> Event:
        """An event that is done once everything enqueued on the device so far is."""

    def done(self, event: Event) -> bool:
        """Ask without waiting."""

    def free_event(self, event: Event) -> None:
        """Give the event back; it must not be used after."""

    def wait_event(self, stream: Stream, event: Event) -> None:
        """Order later work of `stream` after `event`."""

    def relaxed(self) -> AbstractContextManager[None]:
        """Inside, this thread's calls disturb no graph capture that another stream is under."""

    def capacity_bps(self, link: str) -> float:
        """Bytes/s of one large copy alone on `link`, measured now or described by the model."""

    def alloc_pinned(self, nbytes: int) -> int:
        """Address of new page-locked host memory, kept until `free_pinned`."""

    def free_pinned(self, address: int) -> None: ...

    def alloc_device(self, nbytes: int, device: int) -> int:
        """Address of new memory on `device`, kept until `free_device`."""

    def free_device(self, address: int, device: int) -> None: ...

    def host_copy(self, dst: int, src: int, nbytes: int) -> None:
        """Copy host memory with the CPU."""
