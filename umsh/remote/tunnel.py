"""The client's end of TLS: a Unix socket of this user's, relayed over mutual TLS to the server."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
from pathlib import Path
from types import TracebackType

from umsh.errors import DeviceError, NeedError
from umsh.remote.address import host_and_port

CHUNK_NBYTES = 1 << 18
CONNECT_TIMEOUT_S = 10.0


def client_context(ca: Path, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """TLS 1.3, a server that the authority vouches for, and this client's own certificate."""
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if cert is not None:
            context.load_cert_chain(str(cert), None if key is None else str(key))
    except (OSError, ssl.SSLError) as error:
        raise NeedError(f"The certificates cannot be used: {error}.", "Nothing was started.") from error
    return context


class Tunnel:
    """Relays each connection to `path` over TLS to `server` (host:port) while the block runs.

    One thread with an event loop: two threads may not read and write one of Python's TLS connections.
    """

    def __init__(self, server: str, ca: Path, cert: Path | None, key: Path | None) -> None:
        self._host, self._port = host_and_port(server, "Nothing was started: TLS needs a TCP address.")
        self._context = client_context(ca, cert, key)
        self._folder = tempfile.TemporaryDirectory(prefix="umsh-")  # readable by this user alone
        self.path = Path(self._folder.name) / "server"
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Tunnel:
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(2 * CONNECT_TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._folder.cleanup()

    async def _start(self) -> None:
        _, writer = await self._connect()  # a wrong certificate is found out before the program starts
        writer.close()
        await asyncio.start_unix_server(self._serve, str(self.path), limit=CHUNK_NBYTES)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connecting = asyncio.open_connection(
            self._host, self._port, ssl=self._context, server_hostname=self._host, limit=CHUNK_NBYTES
        )
        try:
            return await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        except (OSError, ssl.SSLError, asyncio.TimeoutError) as error:
            raise DeviceError(
                f"No TLS connection to {self._host}:{self._port}: {error or 'it took too long'}.",
                "There is no remote GPU.",
            ) from error

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            remote_reader, remote_writer = await self._connect()
        except DeviceError:
            writer.close()  # the program sees a server that closes during the hello
            return
        await asyncio.gather(copy(reader, remote_writer), copy(remote_reader, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on until either end is gone."""
    try:
        while data := await reader.read(CHUNK_NBYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other direction ends for the same reason
    writer.close()
