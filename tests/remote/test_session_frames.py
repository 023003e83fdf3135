"""The session process alone, on frames made here: what waits is bounded, every end has its exit status."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator

import pytest

from umsh.remote.serve import SOFTWARE
from umsh.remote.sessions import BIN

pytestmark = pytest.mark.skipif(not BIN.exists() or not SOFTWARE.exists(), reason="umsh-session is not built")

NATIVE = BIN.parents[1] / "native"
GIB = 1 << 30
WANTS_REPLY = 1
CONTEXT, STREAM = (
    0xA5010000_00000010,
    0xA5060000_00010000,
)  # the primary one; the first of a client
LEFT, PROTOCOL = 0, 4
CALLS = {
    name: int(number)
    for file in ("wire/ops.h", "generated/ops.h")
    for name, number in re.findall(r"kOp_?(\w+) = (\d+),", (NATIVE / file).read_text())
}


class Raw:
    """A session and the client's end of its connection."""

    def __init__(self, process: subprocess.Popen[str], end: socket.socket) -> None:
        self.process, self.end, self.sequence = process, end, 0

    def frame(self, call: str, *words: int, flags: int = 0) -> bytes:
        self.sequence += 1
        payload = struct.pack(f"<{len(words)}Q", *words)
        return struct.pack("<IHHQ", len(payload), CALLS[call], flags, self.sequence) + payload

    def send(self, call: str, *words: int, flags: int = 0) -> None:
        self.end.sendall(self.frame(call, *words, flags=flags))

    def open(self) -> None:
        self.send("Open", 1 << 44, 64 * GIB, (1 << 44) + 64 * GIB, GIB, 0, flags=WANTS_REPLY)
        nbytes, _, _, sequence = struct.unpack("<IHHQ", self.end.recv(16, socket.MSG_WAITALL))
        assert sequence == 1
        assert struct.unpack_from("<i", self.end.recv(nbytes, socket.MSG_WAITALL))[0] == 0
        self.send("Context", CONTEXT)

    def reply(self) -> tuple[int, int]:
        """The result and the first output of the call that was just sent."""
        nbytes = struct.unpack("<IHHQ", self.end.recv(16, socket.MSG_WAITALL))[0]
        payload = self.end.recv(nbytes, socket.MSG_WAITALL)
        return struct.unpack_from("<i", payload)[0], int.from_bytes(payload[24:32], "little")

    def ended(self) -> tuple[int, str]:
        """Its exit status and what it said."""
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


@pytest.fixture
def raw() -> Iterator[Callable[[], Raw]]:
    made: list[Raw] = []

    def start() -> Raw:
        ours, theirs = socket.socketpair()
        ours.settimeout(30)
        command = [str(BIN), "--fd", str(theirs.fileno()), "--backend", str(SOFTWARE)]
        with theirs:
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        made.append(Raw(process, ours))
        return made[-1]

    yield start
    for session in made:
        session.end.close()
        session.process.kill()
        session.process.communicate()


def test_a_malformed_call_that_waits_is_an_error_of_the_session(raw: Callable[[], Raw]) -> None:
    session = raw()
    session.open()
    session.send("cuCtxSynchronize", 1, 2, 3)
    code, err = session.ended()
    assert code == PROTOCOL
    assert "malformed request" in err


def test_calls_that_wait_are_bounded(raw: Callable[[], Raw]) -> None:
    """The stream waits for a host function that the client never runs."""
    session = raw()
    session.open()
    session.send("HostFunction", 0, 7)
    waits = b"".join(session.frame("cuCtxSynchronize", flags=WANTS_REPLY) for _ in range(5000))
    with contextlib.suppress(OSError):  # it ended before the last ones
        session.end.sendall(waits)
    code, err = session.ended()
    assert code == PROTOCOL
    assert "too many calls that wait" in err


@pytest.mark.parametrize("state", ["open", "mid-frame", "waiting", "capture", "upload"])
def test_a_client_that_vanishes_in_any_state_ends_its_session(raw: Callable[[], Raw], state: str) -> None:
    session = raw()
    session.open()
    if state == "mid-frame":
        session.end.sendall(session.frame("Upload", 0, 0, 64)[:20])
    elif state == "waiting":
        session.send("HostFunction", 0, 7)
        for _ in range(100):
            session.send("cuCtxSynchronize", flags=WANTS_REPLY)
    elif state == "capture":
        session.send("cuStreamCreate", STREAM, 1)
        session.send("cuStreamBeginCapture_v2", STREAM, 0)
    elif state == "upload":
        header = struct.pack("<IHHQ", 4 << 20, CALLS["Upload"], 0, session.sequence + 1)
        session.end.sendall(header + bytes(1 << 20))
    session.end.close()
    assert session.ended()[0] == LEFT


def test_a_product_that_wraps_around_is_no_small_length(raw: Callable[[], Raw]) -> None:
    session = raw()
    session.open()
    session.send("cuMemAlloc_v2", 1, 4096, flags=WANTS_REPLY)
    result, address = session.reply()
    assert result == 0
    session.send("cuMemsetD32_v2", address, 1, 1 << 62, flags=WANTS_REPLY)
    assert session.reply()[0] == 1
