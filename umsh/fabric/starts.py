"""How a copy begins: whose memory, which link, which order, and which of the ways there are to do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umsh.errors import NeedError
from umsh.fabric.backend import Event, Stream
from umsh.fabric.link import Link, between, parse
from umsh.fabric.memory import survey
from umsh.fabric.pieces import Pieces
from umsh.fabric.transfer import CAPTURED, Transfer

if TYPE_CHECKING:
    from umsh.fabric.flow import Flow

UNORDERED_LANE = -1


def start(
    flow: Flow, pieces: Pieces, owners: tuple[Any, Any], stream: object, key: object, ordered: bool
) -> Transfer:
    """Begin the copy: captured, plain, staged or paced."""
    fabric = flow.fabric
    backend, core = fabric.backend, fabric.core
    core.check()
    if not len(pieces.sizes):
        return flow.empty(backend.now())
    to = survey(backend, pieces.dsts, pieces.sizes)
    of = survey(backend, pieces.srcs, pieces.sizes)
    link = between(to, of)
    fabric.last_link[flow.name] = link.name
    pageable = "pageable" in (to.kind, of.kind)
    given = None if stream is None else backend.stream(stream)
    capturing = _capturing_stream(flow, given, owners)
    if capturing is not None:
        return _captured(flow, link, pieces, capturing, pageable)
    with backend.relaxed():
        if not pageable and not fabric.paced:
            return _plain(flow, link, pieces, owners, given, ordered)
        return _queued(flow, link, pieces, owners, given, key, ordered, (to.kind, of.kind))


def _queued(
    flow: Flow,
    link: Link,
    pieces: Pieces,
    owners: Any,
    given: Stream | None,
    key: object,
    ordered: bool,
    kinds: tuple[str, str],
) -> Transfer:
    """Into the link's queue, or through the stager where one end is pageable."""
    fabric = flow.fabric
    backend, core = fabric.backend, fabric.core
    gate = None
    if ordered:
        gate = _gate(flow, link, given)
        if backend.done(gate):
            backend.free_event(gate)
            gate = None
    lane = UNORDERED_LANE if not ordered else 0 if given is None else hash(given)
    transfer = Transfer(flow, link.name, pieces, backend.now(), gate, lane, owners)
    transfer.key = key
    if key is not None and core.join(transfer):
        fabric.dispatcher.kick()
        return transfer
    if "pageable" in kinds:
        note = "pageable host memory: staged through pinned buffers, one more copy by the CPU"
        flow.note_once(note)
        transfer.notes.append(note)
        fabric.stager.start(transfer, to_device=kinds[0] == "device")
    else:
        core.submit(transfer)
    fabric.dispatcher.kick()
    return transfer


def start_checkpoint(flow: Flow, nbytes: int, link: str | None) -> Transfer:
    """Queue bytes that the caller will copy itself."""
    fabric = flow.fabric
    name = link_of(flow, link)
    none = np.zeros(1, np.int64)
    pieces = Pieces(none, none, np.array([nbytes], np.int64))
    transfer = Transfer(flow, name, pieces, fabric.backend.now(), None, UNORDERED_LANE, None)
    transfer.yields = True
    if not fabric.paced:
        return flow.empty(fabric.backend.now())
    fabric.core.submit(transfer)
    fabric.dispatcher.kick()
    return transfer


def link_of(flow: Flow, link: str | None) -> str:
    """`link`, or the one `flow` used last; raises `NeedError` when it has used none."""
    name = link or flow.fabric.last_link.get(flow.name)
    if name is None:
        raise NeedError(
            f"Flow {flow.name!r} has used no link yet.",
            "Nothing was accounted for.",
            "Say link='d2h:0', say.",
        )
    return parse(name).name


def _capturing_stream(flow: Flow, given: Stream | None, owners: tuple[Any, Any]) -> Stream | None:
    """The stream under capture that this copy belongs to: the given one, else the framework's current one."""
    backend = flow.fabric.backend
    candidates: list[Stream | None] = (
        [given] if given is not None else [backend.current_stream(owner) for owner in owners]
    )
    return next((s for s in candidates if s is not None and backend.capturing(s)), None)


def _captured(flow: Flow, link: Link, pieces: Pieces, stream: Stream, pageable: bool) -> Transfer:
    if pageable:
        raise NeedError(
            "Pageable memory cannot be copied inside a graph capture.",
            "Nothing was captured.",
            "Use pinned memory (torch.empty(pin_memory=True), umsh.bind) for what a graph copies.",
        )
    backend = flow.fabric.backend
    transfer = Transfer(flow, link.name, pieces, backend.now(), None, 0, None)
    while transfer.remaining_nbytes:
        backend.copy(link.name, stream, transfer.take(transfer.remaining_nbytes))
    flow.note_once("some copies were captured into a graph and run unpaced at its launch")
    transfer.finish(CAPTURED, backend.now())
    return transfer


def _plain(
    flow: Flow, link: Link, pieces: Pieces, owners: Any, given: Stream | None, ordered: bool
) -> Transfer:
    """No flow asks for anything: one copy on the caller's stream, no thread, no queue."""
    fabric = flow.fabric
    backend, core = fabric.backend, fabric.core
    stream = given
    if stream is None or not ordered:
        stream = fabric.plain_stream(link)
        if ordered:
            backend.wait_event(stream, _gate(flow, link, None))
    now_s = backend.now()
    transfer = Transfer(flow, link.name, pieces, now_s, None, 0, owners)
    while transfer.remaining_nbytes:
        backend.copy(link.name, stream, transfer.take(transfer.remaining_nbytes))
    transfer.last_event = backend.record(stream)
    with core.lock:
        core.reap_plain(now_s)
        core.plain.append(transfer)
    return transfer


def _gate(flow: Flow, link: Link, given: Stream | None) -> Event:
    """An event after the producer and earlier readers: on the given stream, else over the whole device."""
    fabric = flow.fabric
    backend = fabric.backend
    if given is not None:
        return backend.record(given)
    if link.peer is None:
        return backend.record_device(link.device)
    fence = fabric.plain_stream(link)
    for device in (link.device, link.peer):
        backend.wait_event(fence, backend.record_device(device))
    return backend.record(fence)
