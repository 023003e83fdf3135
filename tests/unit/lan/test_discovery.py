"""mDNS: records survive the way, and two endpoints on loopback find each other."""

from __future__ import annotations

import socket
import threading

import pytest

from umsh.lan.cluster import Server
from umsh.lan.discovery import Discovery, from_record, to_record

SERVER = Server("s1", "4090", 24576.0, ("router", "up1"))


def loopback_multicasts() -> bool:
    """Whether this machine carries mDNS packets over loopback (containers often do not)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            probe.sendto(b"", ("224.0.0.251", 5353))
        except OSError:
            return False
    return True


def test_a_record_comes_back_as_the_server() -> None:
    record = {key.encode(): value.encode() for key, value in to_record(SERVER).items()}
    assert from_record(record) == SERVER


@pytest.mark.skipif(not loopback_multicasts(), reason="this machine does not carry multicast over loopback")
def test_an_announced_server_is_found_and_lost() -> None:
    found, lost = threading.Event(), threading.Event()
    seen: list[tuple[Server, str, int]] = []

    def appear(server: Server, host: str, port: int) -> None:
        seen.append((server, host, port))
        found.set()

    with Discovery(["127.0.0.1"]) as watcher:
        watcher.browse(appear, lambda name: lost.set())
        with Discovery(["127.0.0.1"]) as announcer:
            announcer.advertise(SERVER, "127.0.0.1", 7676)
            assert found.wait(30)
        assert lost.wait(30)
    assert seen[0] == (SERVER, "127.0.0.1", 7676)
