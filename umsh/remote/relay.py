"""A relay that plays a slower network: delay, jitter, rate and loss between two ends, and faults on demand.

Threads and sleeps of the kernel give about 0.1 ms of precision; an event loop's timers give a millisecond.
"""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import Annotated

import typer

from umsh.errors import NeedError
from umsh.remote.address import host_and_port

CHUNK_NBYTES = 16384
SEGMENT_NBYTES = 1448
QUEUE_MAX = 4096
RETRANSMIT_MIN_S = 0.001


@dataclass(frozen=True)
class Network:
    """One way of a network. `loss` is the chance that a segment of 1,448 bytes is lost; as with TCP, what
    follows then waits for its repetition, taken as three times the delay."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    rate_bit_s: float = 0.0  # 0: not limited
    loss: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        values = (self.delay_s, self.jitter_s, self.rate_bit_s, self.loss)
        if any(not 0 <= value < float("inf") for value in values) or self.loss >= 1:
            raise NeedError(
                f"This network is none: {self}.",
                "Nothing was started.",
                "No value is negative; loss is below 1.",
            )


class _Direction:
    """Bytes of one way, delivered in order and no sooner than the network allows."""

    def __init__(
        self, source: socket.socket, sink: socket.socket, network: Network, frozen: threading.Event
    ) -> None:
        self._source, self._sink, self._network, self._frozen = source, sink, network, frozen
        self._random = random.Random(network.seed)
        self._queue: queue.Queue[tuple[float, bytes]] = queue.Queue(QUEUE_MAX)
        self._free_at = 0.0  # when the link has sent what it was given
        self._last_at = 0.0
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _due(self, nbytes: int) -> float:
        network, now = self._network, time.monotonic()
        start = max(now, self._free_at)
        self._free_at = start + (nbytes * 8 / network.rate_bit_s if network.rate_bit_s else 0.0)
        due = self._free_at + network.delay_s + network.jitter_s * self._random.random()
        segments = -(-nbytes // SEGMENT_NBYTES)
        if network.loss and self._random.random() < 1 - (1 - network.loss) ** segments:
            due += max(RETRANSMIT_MIN_S, 3 * network.delay_s)
        self._last_at = max(due, self._last_at)
        return self._last_at

    def _read(self) -> None:
        data = b"-"
        while data:
            try:
                data = self._source.recv(CHUNK_NBYTES)
            except OSError:
                data = b""
            self._queue.put((self._due(len(data)), data))

    def _write(self) -> None:
        data = b"-"
        while data:
            due, data = self._queue.get()
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            if self._frozen.is_set():
                data = data or b"-"  # a black hole passes neither bytes nor the end
                continue
            try:
                self._sink.sendall(data) if data else self._sink.shutdown(socket.SHUT_WR)
            except OSError:
                return


class Relay:
    """Listens on a free port of the loopback and passes each connection to `host`:`port`."""

    def __init__(
        self, host: str, port: int, network: Network, listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self._to, self._network = (host, port), network
        self._frozen = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(listen)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to, timeout=10)
            except OSError:
                return
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(end)
            _Direction(client, server, self._network, self._frozen)
            _Direction(server, client, self._network, self._frozen)

    def freeze(self) -> None:
        """From now on nothing passes, and nobody is told: a cable that was pulled."""
        self._frozen.set()

    def cut(self) -> None:
        """Ends every connection at once, whatever is still under way."""
        for end in self._sockets:
            with contextlib.suppress(OSError):  # the other end may have gone before
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._sockets.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()


def main(
    to: Annotated[str, typer.Argument(help="host:port of the server.")],
    listen: Annotated[int, typer.Option(help="Port to listen on; 0: any.")] = 0,
    delay_ms: Annotated[float, typer.Option(help="Delay of each way.")] = 0.0,
    jitter_ms: Annotated[float, typer.Option(help="Up to this much more, at random.")] = 0.0,
    rate_mbit: Annotated[float, typer.Option(help="Rate of each way in Mbit/s; 0: not limited.")] = 0.0,
    loss: Annotated[float, typer.Option(help="Chance that a segment is lost.")] = 0.0,
) -> None:
    """Relay connections to a server over a made-up network, until interrupted."""
    try:
        host, port = host_and_port(to, "Nothing was started.")
    except NeedError as error:
        raise typer.BadParameter(str(error)) from error
    network = Network(delay_ms / 1e3, jitter_ms / 1e3, rate_mbit * 1e6, loss)
    relay = Relay(host, port, network, ("127.0.0.1", listen))
    typer.echo(f"127.0.0.1:{relay.port}")
    threading.Event().wait()


if __name__ == "__main__":
    typer.run(main)
