"""Showing sheets: tables for a terminal of any width, JSON with the same content, and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from umsh.probe.run import Progress as Standing
from umsh.probe.sheets import Sheet
from umsh.records import write_atomic

STYLES = {"kept": "green", "broken": "bold red", "unproven": "yellow", "absent": "dim"}
PADDING, LAST_WIDTH = 2, 40  # columns between cells; what the last column needs before it may wrap
LOG_EVERY_S = 15.0

facts_console = Console(stderr=True, highlight=False)
data_console = Console(highlight=False)


def show(sheet: Sheet, console: Console = data_console) -> None:
    """Print one sheet; empty ones are left out."""
    if not sheet.rows:
        return
    if _needs(sheet) > console.width:
        sheet = stacked(sheet)
    table = Table(
        title=sheet.title, title_justify="left", title_style="bold", box=None, padding=(0, PADDING, 0, 0)
    )
    last = len(sheet.columns) - 1
    for place, column in enumerate(sheet.columns):
        table.add_column(column, header_style="dim", overflow="fold", ratio=None, no_wrap=place != last)
    for row in sheet.rows:
        table.add_row(*(_styled(cell) for cell in row))
    console.print(table)
    if sheet.note:
        console.print(Text(sheet.note, style="dim"))
    console.print()


def _needs(sheet: Sheet) -> int:
    """Columns a terminal needs so that only the last cell of a row wraps, and not too narrowly."""
    lines = [sheet.columns, *sheet.rows]
    widths = [max(len(line[i]) for line in lines) + PADDING for i in range(len(sheet.columns))]
    return sum(widths[:-1]) + min(widths[-1], LAST_WIDTH)


def stacked(sheet: Sheet) -> Sheet:
    """The sheet for a narrow terminal: cells in pairs, the second below the first; the last stays alone."""
    *front, last = range(len(sheet.columns))
    pairs = [front[i : i + 2] for i in range(0, len(front), 2)]

    def join(row: Sequence[str]) -> tuple[str, ...]:
        return (*("\n".join(row[i] for i in pair) for pair in pairs), row[last])

    heads = (*("\n".join(sheet.columns[i] for i in pair) for pair in pairs), sheet.columns[last])
    return Sheet(sheet.title, heads, tuple(join(row) for row in sheet.rows), sheet.note)


def _styled(cell: str) -> Text:
    return Text(cell, style=STYLES.get(cell.split(" ", maxsplit=1)[0], ""))


def write_json(path: Path, sheets: Sequence[Sheet], **more: Any) -> None:
    """The sheets' content as JSON; "-" stands for stdout. RecordError when the file cannot be written."""
    content = {"sheets": [sheet.to_dict() for sheet in sheets], **more}
    data = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
    if str(path) == "-":
        sys.stdout.write(data.decode())
    else:
        write_atomic(path, data)


@contextmanager
def progress() -> Iterator[Callable[[Standing], None]]:
    """A progress bar with the time left on a terminal; elsewhere a line every LOG_EVERY_S seconds."""
    if not facts_console.is_terminal:
        yield _logger()
        return
    columns = (
        BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.description}"),
    )  # fmt: skip
    with Progress(*columns, console=facts_console, transient=True) as bar:
        task = bar.add_task("starting", total=None, left="")

        def tell(now: Standing) -> None:
            left = f"about {duration(now.left_s)} left"
            bar.update(task, description=now.say, total=now.total, completed=now.done, left=left)

        yield tell


def _logger() -> Callable[[Standing], None]:
    said = time.monotonic() - LOG_EVERY_S

    def tell(now: Standing) -> None:
        nonlocal said
        if time.monotonic() - said >= LOG_EVERY_S:
            said = time.monotonic()
            facts_console.print(f"{now.done} of {now.total}  about {duration(now.left_s)} left  {now.say}")

    return tell


def duration(seconds: float) -> str:
    """ "45 s" or "3 min 10 s"."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
