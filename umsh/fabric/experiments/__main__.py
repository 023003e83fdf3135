"""Run experiments: `python -m umsh.fabric.experiments [--backend virtual|cuda] [NAME ...]`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from umsh.fabric.experiments import latency, links, overhead
from umsh.fabric.experiments.lab import Lab, RealLab, VirtualLab
from umsh.fabric.experiments.results import Row, draw, save

RESULTS = Path("fabric-results")
Run = Callable[[Lab], list[Row]]


def _matrix(lab: Lab) -> list[Row]:
    """Every cell on a fresh modelled machine, or on the one device there is."""
    return links.matrix((lambda: lab) if isinstance(lab, RealLab) else VirtualLab)


EXPERIMENTS: dict[str, tuple[str, Run, tuple[str, str, str] | None]] = {
    "e1": (latency.PREDICTION, latency.run, ("scheme", "p99_ms", "p99 of a 256 KiB copy every ms, ms")),
    "e6": (overhead.ALONE_PREDICTION, overhead.alone, ("way", "gbps", "GB/s")),
    "e7": (overhead.COUNTERS_PREDICTION, overhead.counters, None),
    "submit": (overhead.SUBMIT_PREDICTION, overhead.submit, ("layout", "gbps", "GB/s")),
    "host": (overhead.HOST_PREDICTION, lambda lab: overhead.on_this_processor(), None),
    "e2": (links.MATRIX_PREDICTION, _matrix, ("name", "gbps", "GB/s")),
    "e3": (
        links.HBM_PREDICTION,
        lambda lab: links.hbm(),
        ("name", "triad_loss", "share of triad bandwidth lost"),
    ),
}
MODEL_ONLY = {"e3"}
PROCESSOR_ONLY = {"host"}


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="e1 e2 e3 e6 e7 submit host; all by default")
    ] = None,
    backend: Annotated[str, typer.Option(help="virtual (the modelled server) or cuda")] = "virtual",
    out: Annotated[Path, typer.Option(help="folder of the result files")] = RESULTS,
) -> None:
    """Run experiments, print their rows, write one JSON and one picture each."""
    if backend not in ("virtual", "cuda"):
        raise typer.BadParameter("backend is virtual or cuda")
    console = Console()
    for name in names or list(EXPERIMENTS):
        if name not in EXPERIMENTS:
            raise typer.BadParameter(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
        if backend == "cuda" and name in MODEL_ONLY:
            console.print(f"{name}: runs in the model only")
            continue
        lab = _lab(backend)
        prediction, run, picture = EXPERIMENTS[name]
        rows = run(lab)
        path = save(out, name, None if name in PROCESSOR_ONLY else lab.backend, prediction, rows)
        if picture is not None:
            draw(path, rows, picture[0], picture[1], name, picture[2])
        console.print(table(path.stem, rows))


def _lab(backend: str) -> Lab:
    if backend == "virtual":
        return VirtualLab()
    from umsh.fabric.cuda import CudaBackend

    return RealLab(CudaBackend())


def table(title: str, rows: list[Row]) -> Table:
    """All rows, all columns that any row has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    made = Table(title=title)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*[_cell(row.get(column)) for column in columns])
    return made


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    typer.run(main)
