"""Servers that find the scheduler, and the reverse, without configuration: mDNS through zeroconf."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from types import TracebackType

from zeroconf import IPVersion, ServiceBrowser, ServiceInfo, ServiceListener, Zeroconf

from umsh.lan.cluster import Server
from umsh.lan.errors import LanInputError

SERVICE = "_umsh-lan._tcp.local."
ASK_MS = 1000
FIELD_NBYTES_MAX = 255
FOUND_MAX = 1000


def to_record(server: Server) -> dict[str, str]:
    """The TXT record of a server."""
    return {
        "v": "1",
        "name": server.name,
        "gpu": server.gpu,
        "memory_mb": f"{server.memory_mb:g}",
        "links": ",".join(server.links),
    }


def from_record(record: Mapping[bytes, bytes | None]) -> Server:
    """Read a TXT record that anyone on the LAN may have sent; LanInputError if it is not ours or not sane."""
    fields: dict[str, str] = {}
    for key, value in record.items():
        if len(key) > FIELD_NBYTES_MAX or len(value or b"") > FIELD_NBYTES_MAX:
            raise LanInputError(
                "a field of an mDNS record is too long.", "The server was ignored.", "Check it."
            )
        try:
            fields[key.decode("utf-8")] = (value or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise LanInputError(
                "an mDNS record is not text.", "The server was ignored.", "Check it."
            ) from error
    if fields.get("v") != "1" or not fields.get("name") or not fields.get("gpu"):
        raise LanInputError(
            "an mDNS record lacks v=1, name or gpu.", "The server was ignored.", "Run one version."
        )
    try:
        memory_mb = float(fields.get("memory_mb", ""))
    except ValueError as error:
        raise LanInputError(
            "an mDNS record has no memory size.", "The server was ignored.", "Check it."
        ) from error
    links = tuple(link for link in fields.get("links", "").split(",") if link)
    return Server(fields["name"], fields["gpu"], memory_mb, links)


class Discovery:
    """Advertises servers and watches for others. Use as a context manager.

    `interfaces` limits it to addresses of this machine; the default is all. `found(server, host, port)` and
    `lost(name)` are called on zeroconf's thread; a record that is not sane is reported to `refused`.
    """

    def __init__(self, interfaces: list[str] | None = None) -> None:
        if interfaces is None:
            self._zeroconf = Zeroconf(ip_version=IPVersion.V4Only)
        else:
            self._zeroconf = Zeroconf(interfaces=interfaces, ip_version=IPVersion.V4Only)
        self._browser: ServiceBrowser | None = None

    def __enter__(self) -> Discovery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def advertise(self, server: Server, address: str, port: int) -> None:
        """Announce a server that listens at address:port."""
        info = ServiceInfo(
            SERVICE,
            f"{server.name}.{SERVICE}",
            addresses=[socket.inet_aton(address)],
            port=port,
            properties=to_record(server),
        )
        self._zeroconf.register_service(info, allow_name_change=False)

    def browse(
        self,
        found: Callable[[Server, str, int], None],
        lost: Callable[[str], None],
        refused: Callable[[LanInputError], None] = lambda _: None,
    ) -> None:
        """Call back for each server that appears or goes, until close."""
        self._browser = ServiceBrowser(self._zeroconf, SERVICE, listener=_Listener(found, lost, refused))

    def close(self) -> None:
        """Withdraw what was announced and stop."""
        self._zeroconf.unregister_all_services()
        self._zeroconf.close()


class _Listener(ServiceListener):
    def __init__(
        self,
        found: Callable[[Server, str, int], None],
        lost: Callable[[str], None],
        refused: Callable[[LanInputError], None],
    ) -> None:
        self._found, self._lost, self._refused = found, lost, refused
        self._names: dict[str, str] = {}

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        info = zc.get_service_info(type_, name, ASK_MS)
        if info is None or not info.parsed_addresses() or len(self._names) >= FOUND_MAX:
            return
        try:
            server = from_record(info.properties)
        except LanInputError as error:
            self._refused(error)
            return
        self._names[name] = server.name
        self._found(server, info.parsed_addresses()[0], info.port or 0)

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """A changed record counts only when the server comes anew."""

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        if name in self._names:
            self._lost(self._names.pop(name))
