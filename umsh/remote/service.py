"""The listening half of umsh-serve: accepts, greets, and gives each client a session process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from importlib.metadata import version
from pathlib import Path

import msgspec

from umsh.errors import NeedError
from umsh.remote import hello
from umsh.remote.hello import Client, Kind, Refusal, Status
from umsh.remote.sessions import Sessions
from umsh.remote.tunnel import CHUNK_NBYTES, copy

GREETINGS_MAX = 64  # connections in the hello at once; more wait in the kernel's queue
BACKLOG = 1024
Ending = contextlib.AsyncExitStack
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def server_context(cert: Path, key: Path, ca: Path) -> ssl.SSLContext:
    """TLS 1.3 with a certificate from the client, which `ca` must vouch for."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(str(cert), str(key))
        context.load_verify_locations(str(ca))
    except (OSError, ssl.SSLError) as error:
        raise NeedError(f"The certificates cannot be used: {error}.", "Nothing is served.") from error
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class Service:
    """Serves until it is cancelled. NeedError for an address that others reach without any proof."""

    def __init__(
        self, sessions: Sessions, host: str, port: int, token: str | None = None,
        tls: ssl.SSLContext | None = None, sessions_max: int = 64,
    ) -> None:  # fmt: skip
        if host not in LOOPBACK and token is None and tls is None:
            raise NeedError(
                f"{host} is reached by others, and there is no token.",
                "Whoever connects could run code on this machine's GPU; nothing is served.",
                "Give --token-file (it is made if it is missing) or --tls-cert, --tls-key and --tls-ca.",
            )
        self.sessions, self.sessions_max = sessions, sessions_max
        self._host, self._port, self._token, self._tls = host, port, token, tls
        self._version = version("umsh")
        self._started_s = time.monotonic()
        self._greetings = asyncio.Semaphore(GREETINGS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0
        self.listener: socket.socket | None = None

    def listen(self) -> int:
        """Opens the port and returns its number; OSError when it is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self.listener = socket.create_server((self._host, self._port), family=family, backlog=BACKLOG)
        self.listener.setblocking(False)
        return int(self.listener.getsockname()[1])

    async def serve(self) -> None:
        """Accepts until cancelled; then ends every session."""
        assert self.listener is not None
        try:
            await self._accept(self.listener)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._greetings.acquire()
            try:
                end, address = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors: those in use end, and free some
                self._greetings.release()
                self.sessions.log(f"a connection could not be accepted: {error}")
                await asyncio.sleep(0.1)
                continue
            end.setblocking(False)
            self._spawn(end, f"{address[0]}:{address[1]}")

    def _spawn(self, end: socket.socket, peer: str) -> None:
        task = asyncio.create_task(self._client(end, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _without_tls(self, end: socket.socket, tls: ssl.SSLContext, ending: Ending) -> socket.socket:
        """A TLS connection goes through a socket pair: sessions know nothing of TLS."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK_NBYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, end, ssl=tls, ssl_handshake_timeout=hello.TIMEOUT_S
        )
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        inner_reader, inner_writer = await asyncio.open_connection(sock=ours, limit=CHUNK_NBYTES)

        async def relay() -> None:
            await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        passing = asyncio.create_task(relay())
        ending.push_async_callback(self._end_relay, passing, transport)
        return ending.enter_context(theirs)

    async def _end_relay(self, passing: asyncio.Task[None], transport: asyncio.BaseTransport) -> None:
        """The last bytes have a while to leave; a client that takes none of them is dropped."""
        await asyncio.wait({passing}, timeout=hello.TIMEOUT_S)
        passing.cancel()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()

    async def _client(self, end: socket.socket, peer: str) -> None:
        async with Ending() as ending:
            ending.enter_context(end)
            greeting = ending.enter_context(contextlib.ExitStack())
            greeting.callback(self._greetings.release)
            try:
                if self._tls is not None:
                    end, peer = await self._without_tls(end, self._tls, ending), f"{peer} (TLS)"
                client = await hello.greet(end, self.sessions.backend.tables, self._version, self._token)
                if client.kind is Kind.STATUS:
                    await asyncio.wait_for(self._tell_status(end), hello.TIMEOUT_S)
                    return
                await self._admit(end)
            except (Refusal, ConnectionError, OSError, asyncio.TimeoutError) as error:
                self.refused += 1
                self.sessions.log(f"refused {peer}: {error or 'the hello took too long'}")
                return
            greeting.close()
            await self._session(end, peer, client)

    async def _admit(self, end: socket.socket) -> None:
        if len(self.sessions.running) < self.sessions_max:
            return
        text = f"all {self.sessions_max} sessions are taken; try later or raise --sessions-max"
        await hello.welcome(end, Status.FULL, text=text)
        raise Refusal(Status.FULL, text)

    async def _session(self, end: socket.socket, peer: str, client: Client) -> None:
        try:
            await self.sessions.run(end, peer, client, lambda number: hello.welcome(end, Status.OK, number))
        except OSError as error:
            self.sessions.log(f"no session for {peer}: {error}")

    def status(self) -> dict[str, object]:
        """Everything `umsh-serve --status` shows."""
        running = [session.row() for session in self.sessions.running.values()]
        return {
            "version": self._version, "devices": list(self.sessions.backend.devices),
            "uptime_s": round(time.monotonic() - self._started_s, 1), "sessions_max": self.sessions_max,
            "sessions_started": self.sessions.started, "refused": self.refused,
            "calls_of_ended_sessions": self.sessions.calls_of_ended, "sessions": running,
        }  # fmt: skip

    async def _tell_status(self, end: socket.socket) -> None:
        await hello.welcome(end, Status.OK)
        data = msgspec.json.encode(self.status())
        await asyncio.get_running_loop().sock_sendall(end, len(data).to_bytes(8, "little") + data)
