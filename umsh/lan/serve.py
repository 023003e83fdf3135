"""The live scheduler: an asyncio server around `Scheduler`, loopback unless a key is given."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from umsh.errors import UmshError
from umsh.lan import protocol
from umsh.lan.cluster import Request, Server
from umsh.lan.errors import LanInputError, RegistryError, UnknownServerError
from umsh.lan.heartbeat import Heartbeat
from umsh.lan.scheduler import Scheduler

CONNECTIONS_MAX = 4096
HELLO_S = 5.0
IDLE_S = 60.0
TICK_S = 1.0


@dataclass(eq=False)
class _Peer:
    writer: asyncio.StreamWriter
    servers: set[str] = field(default_factory=set)
    requests: set[int] = field(default_factory=set)


class Service:
    """Serves one scheduler. `clock` is monotonic seconds; `key` is needed beyond loopback."""

    def __init__(
        self,
        scheduler: Scheduler,
        key: bytes = b"",
        tick_s: float = TICK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheduler = scheduler
        self._key = key
        self._tick_s = tick_s
        self._clock = clock
        self.ignored: deque[str] = deque(maxlen=100)
        self._peers: set[_Peer] = set()
        self._next = 0
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. LanInputError for an address beyond loopback without a key."""
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        if not loopback and not self._key:
            raise LanInputError(
                f"{host} is reachable from other machines and no key is set.",
                "The scheduler was not started.",
                "Give --key-file with a shared secret, or listen on 127.0.0.1.",
            )
        self._server = await asyncio.start_server(self._serve, host, port, limit=protocol.LINE_NBYTES_MAX)
        self._ticker = asyncio.create_task(self._tick())
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and drop all peers."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._server is not None:
            self._server.close()
        for peer in list(self._peers):
            peer.writer.close()

    def found(self, server: Server) -> None:
        """A server announced itself by mDNS; one that is known or names an unknown link is left as it is."""
        try:
            self.scheduler.tracker.join(server, self._clock())
        except (RegistryError, LanInputError) as error:
            self.ignored.append(str(error))

    def vanished(self, name: str) -> None:
        """A server withdrew its announcement; its requests are queued again."""
        try:
            self.scheduler.lost(name, self._clock())
        except UnknownServerError as error:
            self.ignored.append(str(error))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            self.step()

    def step(self) -> None:
        """One scheduling step; tells clients and servers."""
        decision = self.scheduler.step(self._clock())
        for placement in decision.placed:
            for peer in self._peers:
                if placement.request.id in peer.requests or placement.server in peer.servers:
                    peer.writer.write(protocol.encode(protocol.Placed(placement)))
        for request, reason in decision.refused:
            for peer in self._peers:
                if request.id in peer.requests:
                    peer.writer.write(protocol.encode(protocol.Refused(reason, request.id)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _Peer(writer)
        if len(self._peers) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._peers.add(peer)
        try:
            if await self._admit(reader, writer):
                while line := await asyncio.wait_for(reader.readline(), IDLE_S):
                    writer.write(protocol.encode(self._answer(peer, line)))
                    await writer.drain()
        except (asyncio.TimeoutError, ConnectionError, ValueError):
            # Silent, gone, or a line beyond the limit: the peer is dropped; its servers fall silent and are
            # noticed by the tracker.
            pass
        finally:
            self._peers.discard(peer)
            writer.close()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        nonce = secrets.token_hex(16)
        writer.write(protocol.encode(protocol.Challenge(protocol.VERSION, nonce)))
        await writer.drain()
        try:
            hello = protocol.to_scheduler(await asyncio.wait_for(reader.readline(), HELLO_S))
        except LanInputError as error:
            writer.write(protocol.encode(protocol.Refused(str(error))))
            return False
        if not isinstance(hello, protocol.Hello) or hello.version != protocol.VERSION:
            reason = f"the first message has to be hello with version {protocol.VERSION}"
            writer.write(protocol.encode(protocol.Refused(reason)))
            return False
        if self._key and not hmac.compare_digest(hello.proof, protocol.prove(self._key, nonce)):
            writer.write(protocol.encode(protocol.Refused("the proof does not match the key")))
            return False
        writer.write(protocol.encode(protocol.Accepted()))
        return True

    def _answer(self, peer: _Peer, line: bytes) -> protocol.Accepted | protocol.Refused:
        try:
            return self._take(peer, protocol.to_scheduler(line))
        except UmshError as error:
            return protocol.Refused(str(error))

    def _take(self, peer: _Peer, message: protocol.ToScheduler) -> protocol.Accepted:
        now_s = self._clock()
        if isinstance(message, Heartbeat):
            self.scheduler.beat(message, now_s)
        elif isinstance(message, protocol.Join):
            self.scheduler.tracker.join(message.server, now_s)
            peer.servers.add(message.server.name)
        elif isinstance(message, protocol.Leave):
            self.scheduler.lost(message.server, now_s)
            peer.servers.discard(message.server)
        elif isinstance(message, protocol.Submit):
            request = Request(self._next, message.client, message.type, now_s)
            self._next += 1
            self.scheduler.submit(request)
            peer.requests.add(request.id)
            return protocol.Accepted(request.id)
        elif isinstance(message, protocol.Ended):
            self.scheduler.ended(message.request, now_s, message.alone_s)
            for other in self._peers:
                other.requests.discard(message.request)
        return protocol.Accepted()
