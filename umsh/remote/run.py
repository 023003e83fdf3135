"""umsh-run: start a program whose GPU is on another machine."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from umsh.errors import NeedError, UmshError

LIBRARIES = Path(__file__).parent / "lib"
# A search path inside a program (DT_RPATH, as in PyTorch's wheels) wins over LD_LIBRARY_PATH; a library that
# is already loaded under the same name wins over both.
PRELOADED = ("libcudart.so.13", "libcudart.so.12")
MODES = ("naive", "sr", "dgsf", "full")
SERVER_DEFAULT = "127.0.0.1:7317"
STATIC_RUNTIME = b"libcudart_static_"  # NVIDIA names each build of that library so in its code
USAGE, NOT_FOUND = 2, 127

app = typer.Typer(add_completion=False)


def prepend(value: str | None, first: Sequence[str]) -> str:
    """A search path of `first` and then what was there."""
    return ":".join([*first, *(part for part in (value or "").split(":") if part and part not in first)])


def environment(
    base: Mapping[str, str],
    server: str,
    token: str | None = None,
    mode: str | None = None,
    switches: str | None = None,
    libraries: Path = LIBRARIES,
) -> dict[str, str]:
    """The environment in which a program finds the remote GPU; NeedError for values that mean nothing."""
    if mode is not None and mode not in MODES:
        raise NeedError(
            f"There is no mode {mode!r}.", "Nothing was started.", f"Modes are {', '.join(MODES)}."
        )
    if not (libraries / "libcuda.so.1").exists():
        raise NeedError(
            "The client libraries are not built.", "The program would find no remote GPU.",
            "Install umsh where g++ is available, or run python -m umsh.remote.build.",
        )  # fmt: skip
    made = {**base, "UMSH_SERVER": server}
    made["LD_LIBRARY_PATH"] = prepend(base.get("LD_LIBRARY_PATH"), [str(libraries)])
    preload = [str(libraries / name) for name in PRELOADED if (libraries / name).exists()]
    if preload:
        made["LD_PRELOAD"] = prepend(base.get("LD_PRELOAD"), preload)
    for name, value in (
        ("UMSH_TOKEN", token), ("UMSH_REMOTE_MODE", mode), ("UMSH_REMOTE_SWITCHES", switches),
    ):  # fmt: skip
        if value is not None:
            made[name] = value
    return made


def read_token(path: Path | None) -> str | None:
    """The token in a file's first line. Refused when others may read it: whoever has it has the GPU."""
    if path is None:
        return None
    try:
        mode, text = path.stat().st_mode, path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NeedError(f"The token file {path} cannot be read: {error}.", "Nothing was started.") from error
    if mode & 0o077:
        raise NeedError(
            f"Others may read the token file {path}.", "Nothing was started.", f"chmod 600 {path}"
        )
    token = (text.splitlines() or [""])[0].strip()
    if not token:
        raise NeedError(f"The token file {path} is empty.", "Nothing was started.")
    return token


def links_runtime_statically(program: Path) -> bool:
    """Does the program hold a copy of the CUDA runtime? Such a copy works with NVIDIA's driver alone."""
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(STATIC_RUNTIME) >= 0


def run_child(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs the program as a child, passes signals on, and gives its exit status as a shell would."""
    child = subprocess.Popen(list(command), env=dict(env))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    status = child.wait()
    return status if status >= 0 else 128 - status


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[list[str] | None, typer.Argument(help="The program and its arguments.")] = None,
    server: Annotated[
        str, typer.Option(envvar="UMSH_SERVER", help="host:port or unix:/path of an umsh-serve.")
    ] = SERVER_DEFAULT,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token, readable by you alone.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(envvar="UMSH_REMOTE_MODE", help=f"For comparisons: {', '.join(MODES)}.")
    ] = None,
    switches: Annotated[
        str | None,
        typer.Option(envvar="UMSH_REMOTE_SWITCHES", help="Techniques on or off, as +elide,-delta."),
    ] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="Certificate authority of the server: use TLS.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="This client's certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Say what is there and how fast, instead of running a program.")
    ] = False,
) -> None:
    """Run PROGRAM with the GPU of an umsh-serve. The program is not changed and needs no driver here."""
    if check:
        program = [sys.executable, "-m", "umsh.remote.check"]
    if not program:
        raise typer.BadParameter("name a program, or --check")
    try:
        env = environment(os.environ, server, read_token(token_file), mode, switches)
        found = shutil.which(program[0])
        if found is None:
            typer.echo(f"umsh-run: there is no program {program[0]!r}", err=True)
            raise typer.Exit(NOT_FOUND)
        if links_runtime_statically(Path(found)):
            typer.echo(
                f"umsh-run: {program[0]} links the CUDA runtime statically and will find no device; "
                "build it with nvcc -cudart shared",
                err=True,
            )
        if tls_ca is not None:
            from umsh.remote.tunnel import Tunnel

            with Tunnel(server, tls_ca, tls_cert, tls_key) as tunnel:
                raise typer.Exit(run_child(program, {**env, "UMSH_SERVER": f"unix:{tunnel.path}"}))
    except UmshError as error:
        typer.echo(f"umsh-run: {error}", err=True)
        raise typer.Exit(USAGE) from error
    sys.stdout.flush()
    os.execve(found, program, env)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
