"""A server that lies: the client gives an error, and never reads or writes where it must not."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CLIENT_HELLO_NBYTES = 168
IS_REPLY, OPEN, ACK, HOST_WRITE, HOST_CALL, GOODBYE = 2, 1, 2, 19, 41, 5
Answer = Callable[[socket.socket], None]


def hello(status: int = 0, text: bytes = b"", magic: bytes = b"UMSHCALL") -> bytes:
    return struct.pack("<8sHHI32s208s", magic, 1, 0, status, b"", text)


def welcome(status: int = 0, text: bytes = b"") -> bytes:
    return struct.pack("<IIQ240s", status, 0, 1, text)


def frame(op: int, flags: int, sequence: int, payload: bytes, nbytes: int | None = None) -> bytes:
    length = len(payload) if nbytes is None else nbytes
    return struct.pack("<IHHQ", length, op, flags, sequence) + payload


def reply(sequence: int, outputs: bytes, result: int = 0, executed: int = 1) -> bytes:
    return frame(0, IS_REPLY, sequence, struct.pack("<iiQQ", result, 0, 0, executed) + outputs)


@pytest.fixture
def lying(client_of: Callable[[int], Any]) -> Iterator[Callable[[Answer], Any]]:
    """Starts a server that takes one hello and then does what the test says."""
    listeners: list[socket.socket] = []

    def serve(listener: socket.socket, answer: Answer) -> None:
        end, _ = listener.accept()
        with end:
            end.recv(CLIENT_HELLO_NBYTES, socket.MSG_WAITALL)
            try:
                answer(end)
                end.shutdown(socket.SHUT_WR)
                while end.recv(65536):
                    pass
            except OSError:
                return

    def start(answer: Answer) -> Any:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        return client_of(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.close()


def after_hello(*frames: bytes) -> Answer:
    def answer(end: socket.socket) -> None:
        end.sendall(hello() + welcome())
        end.recv(65536)  # the request to open
        end.sendall(b"".join(frames))

    return answer


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "did not answer the hello"),
        (hello(magic=b"NOTUMSH!"), "what answered is no umsh-serve"),
        (hello(2, b"this server speaks wire 9.0"), "this server speaks wire 9.0"),
        (hello(5, b"x" * 208), "x" * 208),
        (hello(77), "refused the hello (status 77)"),
        (hello() + welcome(6, b"there is no device"), "there is no device"),
        (hello(), "broke during the hello"),
        (b"", "did not answer the hello"),
    ],
)
def test_a_hello_that_is_none_or_refuses(lying: Any, sent: bytes, said: str) -> None:
    done = lying(lambda end: end.sendall(sent)).run("print(cu.cuInit(0))")
    assert done.out.strip() == "100"
    assert said in done.err


BAD_FRAMES = {
    "reply longer than a frame may be": frame(0, IS_REPLY, 1, b"", 0xFFFFFFFF),
    "reply without its header": frame(0, IS_REPLY, 1, b"1234"),
    "reply without outputs": reply(1, b""),
    "snapshot that names 2^60 bytes": reply(1, struct.pack("<Q", 1 << 60)),
    "snapshot of no known form": reply(1, struct.pack("<Q", 64) + bytes(range(64))),
    "snapshot with 2^40 devices": reply(1, struct.pack("<QQQQ", 24, 13000, 3, 1 << 40)),
    "reply to nobody": reply(999, b"12345678"),
    "host write that nobody asked for": frame(
        HOST_WRITE, 0, 0, struct.pack("<QQQQ", 1, 0, 1, 8) + b"overrun!"
    ),
    "host write with a length of its own": frame(HOST_WRITE, 0, 0, struct.pack("<QQQQ", 1, 0, 1, 1 << 50)),
    "host call of an unknown function": frame(HOST_CALL, 0, 0, struct.pack("<QQ", 12345, 0)),
    "acknowledgement of the future": frame(ACK, 0, 0, struct.pack("<Q", 1 << 62)),
    "goodbye cut short": frame(GOODBYE, 0, 0, b"\1"),
    "operation of a client": frame(OPEN, 0, 0, b""),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_ends_in_an_error(lying: Any, name: str) -> None:
    done = lying(after_hello(BAD_FRAMES[name])).run("print(cu.cuInit(0), cu.cuCtxSynchronize())")
    assert done.code == 0, done.err
    assert done.out.split()[0] == "100"
    assert "no device" in done.err


@pytest.mark.parametrize("seed", range(12))
def test_random_bytes_end_in_an_error(lying: Any, seed: int) -> None:
    dice = random.Random(seed)
    frames = [
        frame(dice.choice((0, 2, 4, 5, 6, 19, 41)), dice.choice((0, 2)), dice.randrange(3), dice.randbytes(n))
        for n in (dice.randrange(120) for _ in range(40))
    ]
    done = lying(after_hello(*frames, dice.randbytes(200))).run("print(cu.cuInit(0))")
    assert (done.code, done.out.strip()) == (0, "100"), done.err
