"""Session processes: one for each client, with its page of counters, its end and its place in the status."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import socket
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from umsh.errors import DeviceError
from umsh.remote.hello import Client

BIN = Path(__file__).parent / "bin" / "umsh-session"
STATS = struct.Struct("<8Q")  # native/server/stats.h
# A session that shrank its page would end the server, which reads it, with SIGBUS.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
LOG_LINES_MAX, LOG_LINE_NBYTES = 200, 4096  # of one session: a client cannot fill the server's disk
DESCRIBE_TIMEOUT_S = 60
ENDS = MappingProxyType({
    0: "the client left", 3: "the client was silent for too long", 4: "the client broke the protocol",
    5: "the device could not be used",
})  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """What sessions run on: the libraries, their devices, and the call tables of the session program."""

    library: str
    nvml: str | None
    tables: bytes
    devices: tuple[str, ...]


def describe(library: str, nvml: str | None) -> Backend:
    """Ask the session program what it is and what it finds; DeviceError when it finds no device."""
    if not BIN.exists():
        raise DeviceError(
            "The session program is not built.", "No client can be served.",
            "Install umsh where g++ is available, or run python -m umsh.remote.build.",
        )  # fmt: skip
    command = [str(BIN), "--describe", "--backend", library]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DESCRIBE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise DeviceError(
            f"{library} did not initialise in {DESCRIBE_TIMEOUT_S} s.", "Nothing is served."
        ) from error
    facts = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
    devices = tuple(value for key, value in facts if key == "device")
    if done.returncode != 0 or not devices:
        why = done.stderr.strip() or "it has no device"
        raise DeviceError(
            f"{library} cannot be used: {why}.", "Nothing is served.", "Is the driver installed?"
        )
    return Backend(library, nvml, bytes.fromhex(dict(facts)["tables"]), devices)


@dataclass
class Session:
    """One client: who it is, and the page of counters that its process keeps."""

    number: int
    peer: str
    client: Client
    started_s: float
    page: mmap.mmap

    def calls(self) -> int:
        return int(STATS.unpack(self.page[: STATS.size])[1])

    def row(self) -> dict[str, object]:
        """What the status shows of it: calls and bytes since the start, device bytes held now, seconds."""
        _, calls, nbytes_in, nbytes_out, device, active_ns, _, _ = STATS.unpack(self.page[: STATS.size])
        return {
            "session": self.number, "peer": self.peer, "program": self.client.program, "pid": self.client.pid,
            "age_s": round(time.monotonic() - self.started_s, 1),
            "idle_s": round(max(0, time.monotonic_ns() - active_ns) / 1e9, 1) if active_ns else 0.0,
            "calls": calls, "nbytes_in": nbytes_in, "nbytes_out": nbytes_out, "device_nbytes": device,
        }  # fmt: skip


class Sessions:
    """All sessions of a server. `log` gets one line for each start, end and message of a session."""

    def __init__(
        self, backend: Backend, log: Callable[[str], None], memory_limit: int | None = None,
        card_changes: bool = False,
    ) -> None:  # fmt: skip
        self.backend, self.log = backend, log
        self.options = [] if memory_limit is None else ["--memory-limit", str(memory_limit)]
        self.options += ["--allow-card-changes"] if card_changes else []
        self.running: dict[int, Session] = {}
        self.started = 0
        self.calls_of_ended = 0

    async def run(
        self, end: socket.socket, peer: str, client: Client, greet: Callable[[int], Awaitable[None]]
    ) -> None:
        """Serve `client` on `end` until it leaves.

        `greet` tells it the session's number; then its process takes over the socket.
        """
        self.started += 1
        number, page_fd = self.started, os.memfd_create("umsh-session", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(page_fd, STATS.size)
            fcntl.fcntl(page_fd, fcntl.F_ADD_SEALS, SEALS)
            page = mmap.mmap(page_fd, STATS.size)
            session = self.running[number] = Session(number, peer, client, time.monotonic(), page)
            await greet(number)
            end.setblocking(True)
            process = await self._start(session, end.fileno(), page_fd)
        except BaseException:
            self.running.pop(number, None)
            raise
        finally:
            os.close(page_fd)
            end.close()  # the session has its own copy: the connection ends when the process does
        await self._watch(session, process)

    async def _start(self, session: Session, fd: int, page_fd: int) -> asyncio.subprocess.Process:
        command = [
            str(BIN), "--fd", str(fd), "--stats-fd", str(page_fd), "--session", str(session.number),
            "--backend", self.backend.library, *self.options,
        ]  # fmt: skip
        command += [] if self.backend.nvml is None else ["--nvml", self.backend.nvml]
        client = session.client
        self.log(f"session {session.number}: {client.program} (pid {client.pid}) from {session.peer}")
        return await asyncio.create_subprocess_exec(
            *command, pass_fds=(fd, page_fd), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, limit=LOG_LINE_NBYTES,
        )  # fmt: skip

    async def _watch(self, session: Session, process: asyncio.subprocess.Process) -> None:
        try:
            await self._pass_messages(session, process)
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        finally:
            self.running.pop(session.number, None)
            self.calls_of_ended += session.calls()
        why = ENDS.get(code, f"its process ended with {code}")
        self.log(f"session {session.number}: ended, {why}, after {session.calls()} calls")

    async def _pass_messages(self, session: Session, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        left = LOG_LINES_MAX
        while data := await process.stderr.read(LOG_LINE_NBYTES):
            for line in data.decode("utf-8", "replace").splitlines():
                if left > 0:
                    self.log(f"session {session.number}: {line[:400]}")
                left -= 1
