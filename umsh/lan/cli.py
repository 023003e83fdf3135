"""umsh-sched: simulate, explain and serve LAN scheduling."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from umsh.errors import UmshError
from umsh.lan.cluster import Link, Server
from umsh.lan.correct import Correction
from umsh.lan.explain import as_data, decision_table, links_table, read_state, servers_table
from umsh.lan.policies import PLAIN, make
from umsh.lan.profiles import load_profiles
from umsh.lan.scheduler import Scheduler
from umsh.lan.serve import Service
from umsh.lan.tracker import Tracker

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
out = Console()
err = Console(stderr=True)

DRIFTED, USAGE = 1, 2
TABLES = Path("docs/lan")


@app.command()
def simulate(
    gpus: Annotated[int, typer.Option(help="Set-up of paper table 6: 1 to 4 servers.")] = 4,
    start: Annotated[str, typer.Option(help="Caches at the start: warm or cold.")] = "warm",
    seeds: Annotated[int, typer.Option(help="Seeds to run.")] = 3,
    policy: Annotated[list[str] | None, typer.Option(help="Policies; all plain ones if not given.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Run all experiments; write results, tables, pictures.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Write tables and pictures from committed results.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run a subset again; exit 1 if results drifted.")
    ] = False,
    timing: Annotated[
        bool, typer.Option("--timing", help="Measure steps and events on this machine.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Where tables and pictures go.")] = TABLES,
    as_json: Annotated[bool, typer.Option("--json", help="The same content as JSON.")] = False,
) -> None:
    """Simulate clients, links and GPUs. Everything printed is simulated, except by --timing: measured."""
    from umsh.lan.sim import results

    if check:
        _check()
        return
    if timing:
        rows = list(results_timing())
        results.write(results.RESULTS / "timing.csv", rows)
        _print_rows("measured on this machine", rows, as_json)
        return
    if every:
        _run_all()
    if every or tables:
        _write_tables(folder)
        return
    _print_rows("simulated, mean over seeds", _compare(gpus, start, seeds, policy or list(PLAIN)), as_json)


def results_timing() -> list[dict[str, str]]:
    """Rows of timing.csv."""
    from umsh.lan.sim.timing import measure

    with err.status("measuring"):
        return list(measure())


def _compare(gpus: int, start: str, seeds: int, policies: list[str]) -> list[dict[str, str]]:
    from umsh.lan.sim.run import run
    from umsh.lan.sim.scenario import paper_setup

    if start not in ("warm", "cold") or not 1 <= seeds <= 1000:
        raise typer.BadParameter("start is warm or cold, seeds 1 to 1000")
    rows = []
    for name in policies:
        every = [
            asdict(run(paper_setup(load_profiles(), gpus, seed, start), name)[0]) for seed in range(seeds)
        ]
        means = {key: sum(float(one[key]) for one in every) / seeds for key in every[0]}
        rows.append({"policy": name} | {key: f"{value:.2f}" for key, value in means.items()})
    return rows


def _print_rows(title: str, rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"title": title, "rows": rows}, indent=1))
        return
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(_heading(column), justify="left" if column in ("policy", "what") else "right")
    for row in rows:
        table.add_row(*row.values())
    out.print(table)


def _heading(column: str) -> str:
    """Column name to heading with its unit: latency_s -> latency/s."""
    name = column.removesuffix("_s")
    return f"{name.replace('_', ' ')}/s" if name != column else column.replace("_", " ")


def _run_all() -> None:
    from umsh.lan.sim import results
    from umsh.lan.sim.experiments import EXPERIMENTS

    with err.status("simulating") as status:
        for name, cases in EXPERIMENTS.items():
            rows = results.run_cases(cases(), lambda text: status.update(f"simulating {text}"))
            err.print(f"{name}.csv: {results.write(results.RESULTS / f'{name}.csv', rows)} rows")
        for name, maker in (("oracle", results.run_oracle), ("inference", results.run_inference_times)):
            err.print(f"{name}.csv: {results.write(results.RESULTS / f'{name}.csv', maker())} rows")


def _write_tables(folder: Path) -> None:
    from umsh.lan.sim.pictures import draw
    from umsh.lan.sim.report import tables as make_tables

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in make_tables().items():
        (folder / name).write_text(text, encoding="utf-8")
        err.print(f"wrote {folder / name}")
    for path in draw(folder):
        err.print(f"wrote {path}")


def _check() -> None:
    from umsh.lan.sim.results import drift

    with err.status("running the first seed of every experiment but scale again"):
        found = drift()
    for line in found:
        out.print(line)
    out.print("results drifted" if found else "the committed results come from this code")
    if found:
        raise typer.Exit(DRIFTED)


@app.command()
def explain(
    state: Annotated[
        Path | None, typer.Argument(help="State file (JSON); a simulated moment if not given.")
    ] = None,
    policy: Annotated[str, typer.Option(help="Policy that decides.")] = "umsh",
    gpus: Annotated[int, typer.Option(help="Without a file: set-up of paper table 6.")] = 4,
    seed: Annotated[int, typer.Option(help="Without a file: seed.")] = 0,
    at_s: Annotated[float, typer.Option("--at", help="Without a file: simulated second.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="The decision as JSON.")] = False,
) -> None:
    """Say why each request goes where it does, or waits."""
    named = make(policy)
    correction = Correction()
    if state is not None:
        lan, queue, now_s = read_state(state)
    else:
        from umsh.lan.sim.moment import moment

        lan, queue, now_s, correction = moment(gpus, seed, at_s, policy)
        err.print(f"a simulated moment: {gpus} GPUs, seed {seed}, {now_s:g} s")
    decision = named.policy(lan, queue, now_s, correction)
    if as_json:
        typer.echo(json.dumps(as_data(decision), indent=1))
        return
    out.print(servers_table(lan), links_table(lan), decision_table(decision, now_s))


@app.command()
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback a key is needed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 7676,
    policy: Annotated[str, typer.Option(help="Policy.")] = "umsh",
    link: Annotated[list[str] | None, typer.Option(help="name=Mb/s of each link.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="File with the shared key.")] = None,
    mdns: Annotated[
        bool, typer.Option("--mdns", help="Add servers that announce themselves by mDNS.")
    ] = False,
) -> None:
    """Run the live scheduler until interrupted."""
    links = {}
    for entry in link or ["router=1000"]:
        name, _, mbps = entry.partition("=")
        if not name or not mbps.replace(".", "", 1).isdigit():
            raise typer.BadParameter(f"{entry!r} is not name=Mb/s")
        links[name] = Link(name, float(mbps))
    named = make(policy)
    scheduler = Scheduler(named.policy, Tracker(load_profiles().types, links), named.correct)
    key = key_file.read_bytes().strip() if key_file is not None else b""
    try:
        asyncio.run(_serve(Service(scheduler, key), host, port, mdns))
    except KeyboardInterrupt:
        err.print("stopped")


async def _serve(service: Service, host: str, port: int, mdns: bool) -> None:
    bound = await service.start(host, port)
    err.print(f"listening on {host}:{bound}")
    watch = None
    if mdns:
        from umsh.lan.discovery import Discovery

        loop, watch = asyncio.get_running_loop(), Discovery()

        def found(server: Server, address: str, at: int) -> None:
            loop.call_soon_threadsafe(service.found, server)

        def lost(name: str) -> None:
            loop.call_soon_threadsafe(service.vanished, name)

        watch.browse(found, lost, lambda error: err.print(str(error)))
    try:
        await asyncio.Event().wait()
    finally:
        if watch is not None:
            watch.close()
        await service.stop()


def main() -> None:
    """Entry point: expected errors print their three parts and give exit code 2."""
    try:
        app()
    except UmshError as error:
        err.print(str(error), style="red")
        raise SystemExit(USAGE) from error


if __name__ == "__main__":
    main()
