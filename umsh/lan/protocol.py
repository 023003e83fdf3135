"""Messages between clients, servers and the live scheduler: one JSON object a line, challenge first."""

from __future__ import annotations

import hashlib
import hmac
from typing import TypeAlias, TypeVar

import msgspec

from umsh.lan.cluster import Placement, Server
from umsh.lan.errors import LanInputError
from umsh.lan.heartbeat import Heartbeat

VERSION = 1
LINE_NBYTES_MAX = 1 << 20


class Challenge(msgspec.Struct, frozen=True, tag="challenge", tag_field="message"):
    """First line from the scheduler: its protocol version and a nonce."""

    version: int
    nonce: str


class Hello(msgspec.Struct, frozen=True, tag="hello", tag_field="message"):
    """First line to the scheduler: version and HMAC-SHA256 of the nonce under the shared key."""

    version: int
    proof: str = ""


class Join(msgspec.Struct, frozen=True, tag="join", tag_field="message"):
    """A server joins."""

    server: Server


class Leave(msgspec.Struct, frozen=True, tag="leave", tag_field="message"):
    """A server leaves in order."""

    server: str


class Submit(msgspec.Struct, frozen=True, tag="submit", tag_field="message"):
    """A client asks for one run of a task type."""

    client: int
    type: str


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="message"):
    """A server finished a request; `alone_s` if its GPU was never saturated meanwhile."""

    request: int
    alone_s: float | None = None


class Accepted(msgspec.Struct, frozen=True, tag="accepted", tag_field="message"):
    """The message was taken; `request` is the number given to a submission."""

    request: int = -1


class Refused(msgspec.Struct, frozen=True, tag="refused", tag_field="message"):
    """The message or request was not taken, and why."""

    reason: str
    request: int = -1


class Placed(msgspec.Struct, frozen=True, tag="placed", tag_field="message"):
    """A request goes to a server: sent to the client that asked and to the server."""

    placement: Placement


ToScheduler: TypeAlias = Hello | Join | Leave | Heartbeat | Submit | Ended
FromScheduler: TypeAlias = Challenge | Accepted | Refused | Placed

_T = TypeVar("_T")
_to_scheduler: msgspec.json.Decoder[ToScheduler] = msgspec.json.Decoder(ToScheduler)
_from_scheduler: msgspec.json.Decoder[FromScheduler] = msgspec.json.Decoder(FromScheduler)


def encode(message: ToScheduler | FromScheduler) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"


def to_scheduler(line: bytes) -> ToScheduler:
    """Parse what a client or server sent; LanInputError if it is malformed."""
    return _parse(_to_scheduler, line)


def from_scheduler(line: bytes) -> FromScheduler:
    """Parse what the scheduler sent; LanInputError if it is malformed."""
    return _parse(_from_scheduler, line)


def prove(key: bytes, nonce: str) -> str:
    """The proof that a peer holds the key."""
    return hmac.new(key, nonce.encode(), hashlib.sha256).hexdigest()


def _parse(decoder: msgspec.json.Decoder[_T], line: bytes) -> _T:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, LanInputError) as error:
        raise LanInputError(
            f"a message does not parse: {error}.", "It was refused.", "Run one umsh version on all machines."
        ) from error
