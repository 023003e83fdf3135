"""List and run the case studies; collect their result files into one table of the documentation."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from casestudies.modelled import write as write_modelled
from casestudies.study import ROOT, Result, Study, save
from casestudies.table import write_table

app = typer.Typer(add_completion=False, no_args_is_help=False)
DATA, FACTS = Console(), Console(stderr=True)


def studies() -> dict[str, Any]:
    """Name -> module of every folder whose run.py is run from here: it has a STUDY."""
    modules = {name: importlib.import_module(f"casestudies.{name}.run") for name in folders()}
    return {name: module for name, module in modules.items() if hasattr(module, "STUDY")}


def folders() -> list[str]:
    """Every study there is."""
    return sorted(path.parent.name for path in ROOT.glob("*/run.py"))


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(help="Studies to run; none lists them.")] = None,
    quick: Annotated[bool, typer.Option(help="Small data, few repeats; writes no result file.")] = False,
    machine: Annotated[str, typer.Option(help="Name of the result file.")] = "host",
    everything: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    modelled: Annotated[bool, typer.Option(help="Only rewrite the modelled machines' result files.")] = False,
    table: Annotated[bool, typer.Option(help="Only rewrite docs/casestudies.md from result files.")] = False,
) -> None:
    """Case studies: what an application gains over what people use today."""
    found = studies()
    if unknown := set(names or ()) - set(found):
        FACTS.print(f"No study {sorted(unknown)[0]!r}; there are {', '.join(found)}.")
        raise typer.Exit(2)
    wanted = list(found) if everything else names or []
    if modelled:
        write_modelled({name: module.STUDY for name, module in found.items()})
    if not wanted and not table and not modelled:
        _list(found)
    for name in wanted:
        result = found[name].run(quick)
        _show(found[name].STUDY, result)
        if not result.verified:
            FACTS.print(f"{name}: a result differed from the baseline's.")
            raise typer.Exit(1)
        if not quick:
            path = save(result, ROOT / name, machine)
            found[name].draw(result, ROOT / name / f"{machine}.png")
            FACTS.print(f"Written: {path.relative_to(ROOT.parent)}")
    if table or modelled or (wanted and not quick):
        write_table({name: module.STUDY for name, module in found.items()})


def _list(found: dict[str, Any]) -> None:
    table = Table("study", "what", "paper")
    for name, module in found.items():
        table.add_row(name, module.STUDY.prose, module.STUDY.published)
    for name in set(folders()) - set(found):
        table.add_row(name, f"has a command of its own: python -m casestudies.{name}.run", "")
    DATA.print(table)


def _show(study: Study, result: Result) -> None:
    table = Table("way", *(f"{metric} ({unit})" for metric, unit in result.units.items()), "x baseline")
    for way, metrics in result.samples.items():
        cells = [f"{result.median(way, m):.4g}" if m in metrics else "" for m in result.units]
        baseline = result.baseline or study.baseline
        ratio = result.ratio(way, baseline, study.metric) if study.metric in metrics else None
        table.add_row(way, *cells, "" if ratio is None else f"{ratio:.2f}")
    DATA.print(table)
    for note in result.notes:
        DATA.print(f"  {note}")


if __name__ == "__main__":
    app()
