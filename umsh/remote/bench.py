"""What remote calls cost the client: a developer's command that runs the same calls in each mode."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from umsh.errors import DeviceError, UnsupportedError
from umsh.remote.address import host_and_port
from umsh.remote.relay import Network, Relay
from umsh.remote.run import LIBRARIES, MODES, SERVER_DEFAULT, environment

SOURCE = Path(__file__).parent / "native" / "bench" / "calls.cpp"
TIMEOUT_S = 600
NOTHING = "Nothing was measured."
CALLS, CALLS_WAITING = 200_000, 2_000


@dataclass(frozen=True)
class Row:
    """One kind of call in one mode, measured on this machine: nanoseconds a call until the last has returned
    to the program, and until the server has executed the last."""

    mode: str
    call: str
    calls: int
    returned_ns: float
    executed_ns: float


def compile_program(folder: Path, libraries: Path, source: Path = SOURCE) -> Path:
    """Builds the program that makes the calls. Raises UnsupportedError when there is no compiler."""
    out = folder / "calls"
    command = ["g++", "-std=c++17", "-O2", str(source), str(libraries / "libcuda.so.1"), "-o", str(out)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise UnsupportedError("There is no g++.", NOTHING, "Install g++.") from error
    except subprocess.CalledProcessError as error:
        raise UnsupportedError(f"g++ failed: {error.stderr}", NOTHING) from error
    return out


def printed_by(command: list[str], env: dict[str, str]) -> str:
    """What a program of ours printed. Raises DeviceError when it fails."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise DeviceError(f"{' '.join(command)} failed: {done.stderr.strip()}", NOTHING)
    return done.stdout


def measure(
    program: Path, mode: str, server: str, kernel: str, libraries: Path, calls: int, module: str
) -> list[Row]:
    """Runs the program once. Raises DeviceError when it fails."""
    env = environment(os.environ, server, mode=mode, libraries=libraries)
    command = [str(program), str(calls), kernel, module]
    rows = [line.split() for line in printed_by(command, env).splitlines()]
    return [Row(mode, name, int(count), float(one), float(two)) for name, count, one, two in rows]


def table(rows: list[Row], title: str) -> Table:
    made = Table(title=title)
    for heading in ("mode", "call", "calls", "ns a call", "ns executed", "executed a second"):
        made.add_column(heading, justify="left" if heading in ("mode", "call") else "right")
    for row in rows:
        numbers = (row.calls, row.returned_ns, row.executed_ns, 1e9 / row.executed_ns)
        made.add_row(row.mode, row.call, *(f"{number:,.0f}" for number in numbers))
    return made


def main(
    server: Annotated[str, typer.Option(help="host:port of a server.")] = SERVER_DEFAULT,
    mode: Annotated[list[str] | None, typer.Option(help="Modes; all if not given.")] = None,
    kernel: Annotated[str, typer.Option(help="Kernel of the test module.")] = "none_kernel",
    module: Annotated[str, typer.Option(help="software, or ptx for a real device.")] = "software",
    delay_ms: Annotated[float, typer.Option(help="Relay with this delay each way.")] = 0.0,
    rate_mbit: Annotated[float, typer.Option(help="Relay with this rate; 0: not limited.")] = 0.0,
    libraries: Annotated[Path, typer.Option(help="Folder of the client's libraries.")] = LIBRARIES,
    as_json: Annotated[bool, typer.Option("--json", help="The same content as JSON.")] = False,
) -> None:
    """Measure calls against a running server, on this machine."""
    if delay_ms or rate_mbit:
        network = Network(delay_ms / 1e3, rate_bit_s=rate_mbit * 1e6)
        server = f"127.0.0.1:{Relay(*host_and_port(server, NOTHING), network).port}"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder), libraries)
        for name in mode or MODES:
            waits = name in ("naive", "dgsf") or delay_ms > 0
            rows += measure(
                program, name, server, kernel, libraries, CALLS_WAITING if waits else CALLS, module
            )
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        Console().print(table(rows, f"measured here, {2 * delay_ms:g} ms added to each round trip"))


if __name__ == "__main__":
    typer.run(main)
