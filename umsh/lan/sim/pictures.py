"""Pictures of docs/lan from the committed result files, the analogues of paper figures 18 to 20."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from umsh.lan.sim.metrics import median_interval
from umsh.lan.sim.report import METRICS, ratios
from umsh.lan.sim.results import Row, read

matplotlib.use("Agg")

SHOWN = ("umsh", "gleam", "fgd", "mudi", "fair")
COLOURS = {"umsh": "#0b6e4f", "gleam": "#6bbf59", "fgd": "#c8553d", "mudi": "#f28f3b", "fair": "#7d8597"}
LABELS = {"mudi": "Mudi-style", "fgd": "FGD", "gleam": "gleam", "umsh": "umsh", "fair": "fair"}
DPI = 110


def draw(folder: Path) -> list[Path]:
    """Write every picture into `folder`; returns the paths."""
    paper = read("paper.csv")
    made = [
        _by_gpus(folder / "latency-throughput.png", paper, ("latency_s", "throughput")),
        _by_gpus(folder / "queueing-makespan.png", paper, ("queueing_s", "makespan_s")),
        _inference_times(folder / "inference-cdf.png", read("inference.csv")),
        _ablation(folder / "ablation.png", [*paper, *read("ablation.csv")]),
        _oracle(folder / "oracle.png", read("oracle.csv")),
    ]
    return made


def _by_gpus(path: Path, rows: Sequence[Row], metrics: tuple[str, str]) -> Path:
    heads = {
        "latency_s": "mean end-to-end latency / s",
        "throughput": "normalised throughput",
        "queueing_s": "mean queueing delay / s",
        "makespan_s": "makespan / s",
    }
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained")
    for row, start in enumerate(("warm", "cold")):
        for column, metric in enumerate(metrics):
            _bars(axes[row][column], rows, start, metric)
            axes[row][column].set_ylabel(heads[metric])
            axes[row][column].set_title(f"{'filled' if start == 'warm' else 'empty'} caches at the start")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(SHOWN))
    figure.suptitle("simulated: median over 30 seeds, whiskers 95 % interval")
    return _save(figure, path)


def _bars(axis: Axes, rows: Sequence[Row], start: str, metric: str) -> None:
    width = 0.8 / len(SHOWN)
    for k, policy in enumerate(SHOWN):
        for gpus in (1, 2, 3, 4):
            values = [
                float(row[metric])
                for row in rows
                if row["setup"] == f"{gpus} GPU {start}" and row["policy"] == policy
            ]
            middle, low, high = median_interval(values)
            axis.bar(
                gpus + (k - (len(SHOWN) - 1) / 2) * width,
                middle,
                width,
                color=COLOURS[policy],
                label=LABELS[policy] if gpus == 1 else None,
                yerr=[[middle - low], [high - middle]],
                error_kw={"elinewidth": 0.8, "capsize": 1.5},
            )
    axis.set_xticks(
        [1, 2, 3, 4], ["1 GPU\n3 clients", "2 GPUs\n7 clients", "3 GPUs\n10 clients", "4 GPUs\n15 clients"]
    )
    axis.grid(axis="y", alpha=0.3)


def _inference_times(path: Path, rows: Sequence[Row]) -> Path:
    setups = list(dict.fromkeys(row["setup"] for row in rows))
    figure, axes = plt.subplots(1, len(setups), figsize=(10, 3.8), layout="constrained", sharey=True)
    for axis, setup in zip(axes, setups, strict=True):
        for policy in ("umsh", "gleam", "fgd", "mudi"):
            points = [row for row in rows if row["setup"] == setup and row["policy"] == policy]
            axis.plot(
                [float(row["infer_s"]) for row in points],
                [float(row["quantile"]) for row in points],
                color=COLOURS[policy],
                label=LABELS[policy],
            )
        axis.set_xlabel("inference time of a task / s")
        axis.set_title(setup)
        axis.set_xlim(0, 110)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of tasks")
    axes[0].legend(loc="lower right")
    figure.suptitle("simulated: inference time, queueing and loading not included, 30 seeds")
    return _save(figure, path)


def _ablation(path: Path, rows: Sequence[Row]) -> Path:
    variants = [
        name for name in dict.fromkeys(row["policy"] for row in rows) if name not in ("umsh", "random")
    ]
    figure, axes = plt.subplots(2, 4, figsize=(13, 8), layout="constrained", sharey=True)
    for row, start in enumerate(("warm", "cold")):
        for column, metric in enumerate(METRICS):
            axis = axes[row][column]
            cells = [median_interval(ratios(rows, f"4 GPU {start}", "umsh", v, metric)) for v in variants]
            middles = [cell[0] for cell in cells]
            errors = [[m - low for m, low, _ in cells], [high - m for m, _, high in cells]]
            axis.barh(variants, middles, xerr=errors, color="#6bbf59", error_kw={"elinewidth": 0.8})
            axis.axvline(1.0, color="black", linewidth=0.8)
            axis.set_title(f"{METRICS[metric][0]}, {start}")
            axis.grid(axis="x", alpha=0.3)
    axes[0][0].invert_yaxis()
    figure.suptitle("simulated, 4 GPUs: how much better umsh is than each variant (1: equal)")
    return _save(figure, path)


def _oracle(path: Path, rows: Sequence[Row]) -> Path:
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for policy in SHOWN:
        gaps = sorted(
            100.0 * (float(row["total_s"]) / float(row["best_s"]) - 1.0)
            for row in rows
            if row["policy"] == policy
        )
        shares = [(i + 1) / len(gaps) for i in range(len(gaps))]
        axis.step(gaps, shares, where="post", color=COLOURS[policy], label=LABELS[policy])
    axis.axvline(10.0, color="black", linewidth=0.8, linestyle=":")
    axis.set_xlim(0, 200)
    axis.set_xlabel("summed latency above the best possible / %")
    axis.set_ylabel("share of batches")
    axis.legend(loc="lower right")
    axis.grid(alpha=0.3)
    figure.suptitle("simulated: small batches against the oracle")
    return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    # No date and no version in the file, so that the same results give the same bytes here.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)
    return path
