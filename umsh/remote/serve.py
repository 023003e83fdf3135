"""umsh-serve: lend this machine's GPUs to programs on other machines, or show who uses them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from umsh.errors import DeviceError, NeedError, UmshError
from umsh.remote import hello
from umsh.remote.address import host_and_port
from umsh.remote.run import SERVER_DEFAULT, read_token
from umsh.remote.service import Service, server_context
from umsh.remote.sessions import Sessions, describe

SOFTWARE = Path(__file__).parent / "lib" / "libumsh-software.so"
STATUS_NBYTES_MAX = 1 << 24
CONNECT_TIMEOUT_S = 10
FAILED, USAGE = 1, 2

app = typer.Typer(add_completion=False)
out = Console()
err = Console(stderr=True, highlight=False)


def token_from(path: Path | None) -> str | None:
    """The token in a file, which is made with a new token, readable by its owner alone, if it is missing."""
    if path is not None and not path.exists():
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise NeedError(f"The token file cannot be made: {error}.", "Nothing is served.") from error
        with open(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        err.print(f"A new token was written to {path}: clients need a copy of this file.")
    return read_token(path)


def ask_status(server: str, token: str | None) -> dict[str, Any]:
    """The status of a running server at host:port; DeviceError when there is none or it refuses."""
    address = host_and_port(server, "There is no status.")
    try:
        with socket.create_connection(address, CONNECT_TIMEOUT_S) as end:
            hello.call(end, version("umsh"), token)
            nbytes = int.from_bytes(hello.exactly(end, 8), "little")
            if nbytes > STATUS_NBYTES_MAX:
                raise DeviceError(f"The server announces a status of {nbytes} bytes.", "It was not read.")
            found: dict[str, Any] = msgspec.json.decode(hello.exactly(end, nbytes))
    except OSError as error:
        if isinstance(error, UmshError):
            raise
        raise DeviceError(
            f"No umsh-serve answers at {server}: {error}.", "There is no status.", "Is it running?"
        ) from error
    return found


def table_of(status: dict[str, Any]) -> Table:
    """Sessions as a table: seconds, MiB, and calls a second over each session's life."""
    title = f"umsh-serve {status['version']}: {', '.join(status['devices'])}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), caption_justify="left")
    for name in ("", "client", "program", "age", "idle", "device", "calls/s", "in", "out"):
        wide = name in ("client", "program")  # the numbers are never cut, these may be
        table.add_column(
            name, justify="left" if wide else "right", no_wrap=True, min_width=0 if wide else len(name)
        )
    for row in status["sessions"]:
        mib = [f"{row[name] / 2**20:.1f}" for name in ("device_nbytes", "nbytes_in", "nbytes_out")]
        rate = row["calls"] / row["age_s"] if row["age_s"] else 0.0
        table.add_row(
            str(row["session"]), row["peer"], f"{row['program']} ({row['pid']})", f"{row['age_s']:.0f}",
            f"{row['idle_s']:.0f}", mib[0], f"{rate:.0f}", mib[1], mib[2],
        )  # fmt: skip
    table.caption = (
        f"age and idle in s; device, in and out in MiB; up {status['uptime_s']:.0f} s; "
        f"{len(status['sessions'])} of {status['sessions_max']} sessions, "
        f"{status['sessions_started']} started, {status['refused']} refused"
    )
    return table


def connect_lines(host: str, port: int, token_file: Path | None, tls: bool) -> str:
    """How a client connects, as it would be typed."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    options = f" --token-file {token_file.name}" if token_file else ""
    options += " --tls-ca CA --tls-cert CERT --tls-key KEY" if tls else ""
    return f"umsh-run --server {name}:{port}{options} -- PROGRAM"


async def serve_until_signal(service: Service) -> None:
    task = asyncio.create_task(service.serve())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def log(line: str) -> None:
    err.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False)


@app.command()
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine a proof is needed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 7317,
    token_file: Annotated[
        Path | None, typer.Option(help="Token that clients must know; made if missing.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="This server's certificate: serve over mutual TLS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="Authority that vouches for clients.")] = None,
    sessions_max: Annotated[int, typer.Option(min=1, help="Clients at once.")] = 64,
    memory_limit: Annotated[int | None, typer.Option(min=1, help="Device bytes a client may hold.")] = None,
    allow_card_changes: Annotated[
        bool, typer.Option("--allow-card-changes", help="Let clients change clocks, power and modes by NVML.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="cuda, software (for tests), or a driver library's path.")
    ] = "cuda",
    status: Annotated[bool, typer.Option("--status", help="Show a running server instead.")] = False,
    server: Annotated[str, typer.Option(help="With --status: whose.")] = SERVER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="With --status: as JSON.")] = False,
) -> None:
    """Lend this machine's GPUs, or show with --status who uses them."""
    try:
        if status:
            found = ask_status(server, read_token(token_file))
            if as_json:
                sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
            else:
                out.print(table_of(found))
            return
        tls = None
        if tls_cert or tls_key or tls_ca:
            if not (tls_cert and tls_key and tls_ca):
                raise NeedError("TLS needs --tls-cert, --tls-key and --tls-ca.", "Nothing is served.")
            tls = server_context(tls_cert, tls_key, tls_ca)
        libraries = {"cuda": ("libcuda.so.1", "libnvidia-ml.so.1"), "software": (str(SOFTWARE), None)}
        backend = describe(*libraries.get(device, (device, None)))
        sessions = Sessions(backend, log, memory_limit, allow_card_changes)
        service = Service(sessions, host, port, token_from(token_file), tls, sessions_max)
        port = service.listen()
    except (UmshError, OSError) as error:
        err.print(f"umsh-serve: {error}", markup=False)
        raise typer.Exit(USAGE if isinstance(error, NeedError) else FAILED) from error
    err.print(f"umsh-serve: {', '.join(backend.devices)} at {host}:{port}", markup=False)
    err.print(f"  {connect_lines(host, port, token_file, tls is not None)}", markup=False, soft_wrap=True)
    asyncio.run(serve_until_signal(service))


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
