"""The command `umsh-probe`: measure this machine, write the choice that `import umsh` uses, explain it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from umsh.errors import DeviceError, UmshError

STANDS, BROKEN, USAGE, NOTHING, NOISY, INTERRUPTED = 0, 1, 2, 3, 4, 130

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measure how CPU and GPU share memory here: facts, litmus verdicts, benchmarks, and the choice "
    "generated from them. Without a command it does everything.",
    epilog="Exit codes: 0 a choice stands; 1 a mechanism in force is broken here; 2 usage; 3 nothing could "
    "be measured; 4 too noisy to write a choice; 130 interrupted (run it again to resume).",
)

Device = Annotated[str, typer.Option(help="A number, or DRIVER:NUMBER such as opencl:0.")]
Machine = Annotated[
    str, typer.Option(help="Probe a modelled machine instead: raptor, arrow, lunar, orin or spark.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer sizes and runs: minutes become seconds.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the tables' content here; - is stdout.")]
Output = Annotated[
    Path | None,
    typer.Option(help="Folder for the files, instead of the one where `import umsh` finds the choice."),
]
Profile = Annotated[Path | None, typer.Argument(help="Default: the one in --output, else the last probe's.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of stress settings and of the order of runs.")]
Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Wait so long for another probe to end.")]


@app.callback()
def everything(
    context: typer.Context,
    device: Device = "0",
    machine: Machine = "",
    quick: Quick = False,
    json: Json = None,
    output: Output = None,
    seed: Seed = 1,
    wait: Wait = 0.0,
) -> None:
    if context.invoked_subcommand is None:
        device = f"model:{machine}" if machine else device
        settings = _settings(device, quick, output, seed, wait)
        _do(lambda commands: commands.everything(settings, json))


@app.command()
def facts(device: Device = "0", json: Json = None) -> None:
    """What the machine, driver and device say of themselves; memory kinds that are absent, and why."""
    _do(lambda commands: commands.facts(_settings(device), json))


@app.command()
def check(
    device: Device = "0", quick: Quick = False, json: Json = None, seed: Seed = 1, wait: Wait = 0.0
) -> None:
    """Litmus verdicts of every candidate; changes nothing."""
    settings = _settings(device, quick, None, seed, wait, benches=(), purpose="check")
    _do(lambda commands: commands.check(settings, json))


@app.command()
def bench(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[BENCHMARK]...")] = None,
    device: Device = "0",
    quick: Quick = False,
    json: Json = None,
    seed: Seed = 1,
    wait: Wait = 0.0,
) -> None:
    """Run benchmarks, all or those named, without verdicts; changes nothing."""
    from umsh.microbench.catalogue import benchmarks

    if unknown := set(keys or ()) - set(benchmarks()):
        known = ", ".join(benchmarks())
        raise typer.BadParameter(f"No benchmark {', '.join(sorted(unknown))}. There are: {known}.")
    only = tuple(keys) if keys else None
    settings = _settings(device, quick, None, seed, wait, benches=only, verdicts=False, purpose="bench")
    _do(lambda commands: commands.bench(settings, json))


@app.command()
def choose(
    profile: Profile = None,
    device: Device = "0",
    output: Output = None,
    json: Json = None,
) -> None:
    """Generate the choice again from a profile; measures nothing."""
    _do(lambda commands: commands.choose(_settings(device, output=output), profile, json))


@app.command()
def explain(device: Device = "0", json: Json = None) -> None:
    """Which choice is in force, why, and what came second."""
    _do(lambda commands: commands.explain(_settings(device), json))


@app.command()
def verify(device: Device = "0", json: Json = None, seed: Seed = 1, wait: Wait = 0.0) -> None:
    """Run the litmus tests of what is in force again, quickly: after a driver or kernel update."""
    settings = _settings(device, True, None, seed, wait, benches=(), purpose="verify")
    _do(lambda commands: commands.verify(settings, json))


@app.command("new-platform")
def new_platform(
    name: Annotated[str, typer.Argument(help="Of the platform, such as thor.")],
    folder: Annotated[Path, typer.Option(help="Where its file goes.")] = Path("backends"),
    device: Device = "0",
    machine: Machine = "",
    quick: Quick = False,
    output: Output = None,
    json: Json = None,
) -> None:
    """Write a first platform file, say what is still unknown, and run the whole probe (docs/porting.md)."""
    settings = _settings(f"model:{machine}" if machine else device, quick, output)
    _do(lambda commands: commands.new_platform(settings, name, folder, json))


@app.command()
def report(
    profile: Profile = None,
    device: Device = "0",
    output: Output = None,
) -> None:
    """Write one self-contained HTML file of a profile and its choice."""
    _do(lambda commands: commands.report(_settings(device, output=output), profile))


def _settings(
    device: str,
    quick: bool = False,
    output: Path | None = None,
    seed: int = 1,
    wait: float = 0.0,
    **more: Any,
) -> Any:
    from umsh.probe.run import Settings

    which: int | str = int(device) if device.isdigit() else device
    return Settings(which, quick, seed, output, wait_s=wait, **more)


def _do(act: Callable[[Any], int]) -> NoReturn:
    """Run one of umsh.probe.commands, say on stderr why it failed, and leave with its exit code."""
    try:
        from umsh.probe import commands

        raise typer.Exit(act(commands))
    except KeyboardInterrupt:
        _say("\nInterrupted. What was measured is kept: run the same command again to resume.")
        raise typer.Exit(INTERRUPTED) from None
    except DeviceError as error:
        _say(f"Nothing could be measured. {error}")
        raise typer.Exit(NOTHING) from error
    except UmshError as error:
        _say(f"{type(error).__name__}: {error}")
        raise typer.Exit(USAGE) from error


def run(arguments: list[str] | None = None) -> int:
    """The exit code of a command line."""
    try:
        app(arguments, prog_name="umsh-probe")
    except SystemExit as end:
        return int(end.code or STANDS)
    return STANDS


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run())


def _say(text: str) -> None:
    print(text, file=sys.stderr)
