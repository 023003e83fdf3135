"""The hello of the wire (native/wire/frame.h): who connects, with which version, and may they?"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

from umsh.errors import DeviceError

MAGIC = b"UMSHCALL"
WIRE_MAJOR, WIRE_MINOR = 1, 0
TIMEOUT_S = 5.0
NONCE_NBYTES = 32

# Fields of ClientHello, ServerHello, Welcome: little endian, without padding.
CLIENT = struct.Struct("<8sHHI32s32sQ64s16s")
SERVER = struct.Struct("<8sHHI32s208s")
WELCOME = struct.Struct("<IIQ240s")
PROOF_NBYTES = 32
assert (CLIENT.size, SERVER.size, WELCOME.size) == (168, 256, 256)


class Kind(IntEnum):
    """What a connection is for."""

    SESSION = 1
    STATUS = 2


class Status(IntEnum):
    """How a hello ends; values of HelloStatus."""

    OK = 0
    PROVE_TOKEN = 1
    VERSION_MISMATCH = 2
    TABLES_MISMATCH = 3
    REFUSED_TOKEN = 4
    FULL = 5
    NO_DEVICE = 6
    BAD_HELLO = 7
    FAILED = 8


@dataclass(frozen=True)
class Client:
    """What a client says of itself."""

    kind: Kind
    pid: int
    program: str
    nonce: bytes


class Refusal(Exception):
    """A hello that ends the connection: the status and a text that says what to do."""

    def __init__(self, status: Status, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(text)


def text_of(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def proof(token: str, client_nonce: bytes, server_nonce: bytes) -> bytes:
    """What shows that an end knows the token without sending it: HMAC-SHA256 over both nonces."""
    return hmac.digest(token.encode(), client_nonce + server_nonce, "sha256")


def parse(data: bytes, tables: bytes, version: str) -> Client:
    """The client's hello; Refusal when it is none, or of another wire or other call tables."""
    magic, major, minor, kind, theirs, nonce, pid, program, their_version = CLIENT.unpack(data)
    if magic != MAGIC:
        raise Refusal(Status.BAD_HELLO, "this is an umsh-serve: connect with umsh-run")
    if major != WIRE_MAJOR:
        raise Refusal(
            Status.VERSION_MISMATCH,
            f"the client speaks wire {major}.{minor}, this server {WIRE_MAJOR}.{WIRE_MINOR}: "
            "install the same umsh on both",
        )
    if kind not in (Kind.SESSION, Kind.STATUS):
        raise Refusal(Status.BAD_HELLO, f"there is no connection of kind {kind}")
    if kind == Kind.SESSION and theirs != tables:
        raise Refusal(
            Status.TABLES_MISMATCH,
            f"the client's umsh {text_of(their_version)} and the server's {version} number their calls "
            "differently: install the same umsh on both",
        )
    return Client(Kind(kind), pid, text_of(program), nonce)


async def receive(end: socket.socket, nbytes: int) -> bytes:
    """Exactly `nbytes`; ConnectionError when the peer leaves before."""
    loop, parts = asyncio.get_running_loop(), b""
    while len(parts) < nbytes:
        part = await loop.sock_recv(end, nbytes - len(parts))
        if not part:
            raise ConnectionError("the peer left during the hello")
        parts += part
    return parts


async def answer(end: socket.socket, status: Status, text: str, nonce: bytes = bytes(NONCE_NBYTES)) -> None:
    data = SERVER.pack(MAGIC, WIRE_MAJOR, WIRE_MINOR, status, nonce, text.encode()[:207])
    await asyncio.get_running_loop().sock_sendall(end, data)


async def welcome(end: socket.socket, status: Status, session: int = 0, text: str = "") -> None:
    """The last message of a hello."""
    await asyncio.get_running_loop().sock_sendall(end, WELCOME.pack(status, 0, session, text.encode()[:239]))


async def greet(end: socket.socket, tables: bytes, version: str, token: str | None) -> Client:
    """The server's half up to the proof; Refusal has been answered when it is raised.

    TimeoutError after 5 s, ConnectionError when the peer leaves. The caller sends welcome().
    """
    return await asyncio.wait_for(_greet(end, tables, version, token), TIMEOUT_S)


async def _greet(end: socket.socket, tables: bytes, version: str, token: str | None) -> Client:
    try:
        client = parse(await receive(end, CLIENT.size), tables, version)
    except Refusal as refusal:
        await answer(end, refusal.status, refusal.text)
        raise
    if token is None:
        await answer(end, Status.OK, version)
        return client
    nonce = os.urandom(NONCE_NBYTES)
    await answer(end, Status.PROVE_TOKEN, version, nonce)
    if not hmac.compare_digest(await receive(end, PROOF_NBYTES), proof(token, client.nonce, nonce)):
        wrong = Refusal(Status.REFUSED_TOKEN, "the token is not this server's")
        await welcome(end, wrong.status, text=wrong.text)
        raise wrong
    return client


def call(end: socket.socket, version: str, token: str | None) -> None:
    """The client's half for a status request, on a blocking socket; DeviceError when it is refused."""
    nonce = os.urandom(NONCE_NBYTES)
    end.sendall(
        CLIENT.pack(MAGIC, WIRE_MAJOR, WIRE_MINOR, Kind.STATUS, bytes(32), nonce, os.getpid(),
                    b"umsh-serve --status", version.encode()[:15])
    )  # fmt: skip
    magic, _, _, status, theirs, text = SERVER.unpack(exactly(end, SERVER.size))
    if magic != MAGIC:
        raise DeviceError("What answered is no umsh-serve.", "There is no status.", "Check the port.")
    if status == Status.PROVE_TOKEN:
        if token is None:
            raise DeviceError("The server asks for a token.", "There is no status.", "Give --token-file.")
        end.sendall(proof(token, nonce, theirs))
    elif status != Status.OK:
        raise DeviceError(f"The server refused: {text_of(text)}.", "There is no status.")
    status, _, _, text = WELCOME.unpack(exactly(end, WELCOME.size))
    if status != Status.OK:
        raise DeviceError(f"The server refused: {text_of(text)}.", "There is no status.")


def exactly(end: socket.socket, nbytes: int) -> bytes:
    """Exactly `nbytes` of a blocking socket; DeviceError when the peer leaves before."""
    parts = b""
    while len(parts) < nbytes:
        part = end.recv(min(nbytes - len(parts), 1 << 20))
        if not part:
            raise DeviceError("The server closed the connection.", "There is no status.")
        parts += part
    return parts
