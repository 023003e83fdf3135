"""Result files: JSON with label, machine, command, prediction and rows, and a picture each."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from umsh.fabric.backend import Backend

Row = dict[str, Any]


def percentiles_ms(values_s: Sequence[float]) -> Row:
    """p50, p99 and max in ms, and the number of samples."""
    if not values_s:
        return {"n": 0, "p50_ms": None, "p99_ms": None, "max_ms": None}
    p50, p99 = np.percentile(np.array(values_s) * 1e3, [50, 99])
    return {"n": len(values_s), "p50_ms": float(p50), "p99_ms": float(p99), "max_ms": max(values_s) * 1e3}


def machine(backend: Backend) -> str:
    """What the figures were taken on; the model's parameters when there was no machine."""
    model = getattr(getattr(backend, "machine", None), "model", None)
    if model is not None:
        return repr(model)
    from importlib import import_module

    torch = import_module("torch")
    return f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}, Python {platform.python_version()}"


def processor() -> str:
    """Model of this machine's processor, as the kernel names it."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
    return (
        f"{names[0] if names else platform.machine()}, {len(names)} cores, Python {platform.python_version()}"
    )


def save(
    out: Path,
    name: str,
    backend: Backend | None,
    prediction: str,
    rows: list[Row],
    extra: Row | None = None,
    module: str = "umsh.fabric.experiments",
) -> Path:
    """Write `<out>/<name>.<label>.json`; returns the path. Without a backend the processor was measured."""
    out.mkdir(parents=True, exist_ok=True)
    label = "measured" if backend is None else backend.label
    path = out / f"{name}.{label}.json"
    body = {
        "experiment": name,
        "label": label,
        "machine": processor() if backend is None else machine(backend),
        "command": " ".join(["python", "-m", module, *sys.argv[1:]]),
        "prediction": prediction,
        **(extra or {}),
        "rows": rows,
    }
    path.write_text(json.dumps(body, indent=1, default=float) + "\n")
    return path


def draw(path: Path, rows: list[Row], label: str, bars: str, title: str, unit: str) -> None:
    """Horizontal bars of column `bars`, named by column `label`; beside the result file, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row.get(bars) is not None]
    figure, axes = pyplot.subplots(figsize=(7, 0.35 * len(shown) + 1.2))
    axes.barh([str(row[label]) for row in shown], [row[bars] for row in shown], color="#4477aa")
    axes.invert_yaxis()
    values = [float(row[bars]) for row in shown]
    if values and min(values) > 0 and max(values) > 50 * min(values):
        axes.set_xscale("log")
    axes.set_xlabel(unit)
    axes.set_title(f"{title} ({path.stem.rpartition('.')[2]})", fontsize=9)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=90)
    pyplot.close(figure)
