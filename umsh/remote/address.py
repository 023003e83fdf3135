"""Addresses of servers as people type them."""

from __future__ import annotations

from umsh.errors import NeedError


def host_and_port(server: str, consequence: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port". NeedError, with `consequence`, when it is neither."""
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise NeedError(f"{server!r} is no host:port.", consequence, "Give one such as gpubox:7317.")
    return host.strip("[]"), int(port)
