"""Heartbeat messages: what a server's daemon thread tells the scheduler once a second, as msgspec structs."""

from __future__ import annotations

import math

import msgspec

from umsh.lan.cluster import Stage
from umsh.lan.errors import LanInputError, check_number

VERSION = 1
TASKS_MAX = 4096
NBYTES_MAX = 1 << 20


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Progress of one task: bytes sent of its loading, synchronise calls of its inference."""

    request: int
    client: int
    type: str
    stage: Stage
    submit_s: float
    sent_bytes: float
    total_bytes: float
    syncs: int
    syncs_total: int
    warm: bool


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat", tag_field="message"):
    """State of a server at `sent_s` on its own monotonic clock; `boot` changes when the daemon restarts.

    `cached` maps resident weights to the seconds since their last use.
    """

    server: str
    boot: int
    seq: int
    sent_s: float
    gpu: str
    memory_mb: float
    links: tuple[str, ...]
    utilisation: float
    tasks: tuple[Progress, ...] = ()
    cached: dict[str, float] = {}
    version: int = VERSION


_decoder = msgspec.json.Decoder(Heartbeat)


def encode(beat: Heartbeat) -> bytes:
    """The message as JSON."""
    return msgspec.json.encode(beat)


def decode(data: bytes) -> Heartbeat:
    """Parse and check a message; LanInputError says what is wrong with it."""
    if len(data) > NBYTES_MAX:
        raise LanInputError(
            f"a heartbeat has {len(data)} bytes.", "It was dropped.", f"The bound is {NBYTES_MAX}."
        )
    try:
        beat = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LanInputError(
            f"a heartbeat does not parse: {error}.",
            "It was dropped.",
            "Run one umsh version on all machines.",
        ) from error
    check(beat)
    return beat


def check(beat: Heartbeat) -> None:
    """Refuse a heartbeat with impossible values: NaN, occupancy outside [0, 1], negative memory, ..."""
    who = f"of server {beat.server!r}"
    if beat.version != VERSION:
        raise LanInputError(
            f"a heartbeat {who} has version {beat.version}, known is {VERSION}.",
            "It was dropped.",
            "Run one umsh version on all machines.",
        )
    if len(beat.tasks) > TASKS_MAX:
        raise LanInputError(
            f"a heartbeat {who} lists {len(beat.tasks)} tasks.", "It was dropped.", "Check the daemon."
        )
    check_number(beat.seq, f"sequence number {who}")
    check_number(beat.sent_s, f"time {who}")
    check_number(beat.memory_mb, f"GPU memory {who} in MiB")
    check_number(beat.utilisation, f"GPU utilisation {who}", 0.0, 1.0)
    for task in beat.tasks:
        # The messages are built only for a bad value: this runs for every task of every heartbeat.
        if not (0.0 <= task.sent_bytes < math.inf and 0.0 <= task.total_bytes < math.inf):
            check_number(task.sent_bytes, f"bytes sent of request {task.request}")
            check_number(task.total_bytes, f"bytes of request {task.request}")
        if not (task.syncs >= 0 and task.syncs_total >= 1):
            check_number(task.syncs, f"synchronise calls of request {task.request}")
            check_number(task.syncs_total, f"total synchronise calls of request {task.request}", 1)
    for name, age_s in beat.cached.items():
        if not 0.0 <= age_s < math.inf:
            check_number(age_s, f"age of the cached weights {name!r} {who}")
