"""Tables of docs/lan from the committed result files: pure, so that drift shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from umsh.lan.sim.metrics import median_interval
from umsh.lan.sim.results import Row, read

# Metric -> (heading, published best ratio of the paper, target of this project). Higher is better for one.
METRICS = {
    "latency_s": ("latency", 1.56, 1.5),
    "throughput": ("throughput", 1.79, 1.75),
    "queueing_s": ("queueing", 2.88, 2.8),
    "makespan_s": ("makespan", 1.76, 1.7),
}
COLUMNS = ("latency_s", "throughput", "queueing_s", "queueing_max_s", "makespan_s", "cold_loads")
BASELINES = ("fgd", "mudi")


def ratios(rows: Sequence[Row], setup: str, ours: str, theirs: str, metric: str) -> list[float]:
    """Improvement of `ours` over `theirs` seed by seed; above 1 is better for `ours`."""
    by_seed: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["setup"] == setup and row["policy"] in (ours, theirs):
            by_seed.setdefault(row["seed"], {})[row["policy"]] = float(row[metric])
    pairs = [(found[ours], found[theirs]) for found in by_seed.values() if len(found) == 2]
    if metric == "throughput":
        return [mine / other for mine, other in pairs if other > 0.0]
    return [other / mine for mine, other in pairs if mine > 0.0]


def _cell(values: Sequence[float], form: str = "{:.2f}") -> str:
    if not values:
        return "-"
    middle, low, high = median_interval(values)
    return f"{form.format(middle)} [{form.format(low)}, {form.format(high)}]"


def ratio_table(rows: Sequence[Row], setups: Sequence[str], policies: Sequence[str]) -> list[str]:
    """Markdown: improvement over FGD and Mudi-style, median [95 % interval] over seeds."""
    lines = [
        "| set-up | policy | against | " + " | ".join(head for head, _, _ in METRICS.values()) + " |",
        "|---|---|---|" + "---|" * len(METRICS),
    ]
    for setup in setups:
        for ours in policies:
            for theirs in BASELINES:
                cells = [_cell(ratios(rows, setup, ours, theirs, metric)) for metric in METRICS]
                lines.append(f"| {setup} | {ours} | {theirs} | " + " | ".join(cells) + " |")
    return lines


def reached_table(rows: Sequence[Row], starts: Sequence[str]) -> list[str]:
    """Markdown: the targets at 4 GPUs and whether the median reaches them."""
    lines = ["| target | published | " + " | ".join(f"{s}, vs {b}" for s in starts for b in BASELINES) + " |"]
    lines.append("|---|---|" + "---|" * (len(starts) * len(BASELINES)))
    for metric, (head, published, target) in METRICS.items():
        cells = []
        for start in starts:
            for theirs in BASELINES:
                middle, _, _ = median_interval(ratios(rows, f"4 GPU {start}", "umsh", theirs, metric))
                cells.append(f"{middle:.2f} {'reached' if middle >= target else '**not reached**'}")
        lines.append(f"| {head} >= {target} x | {published} x | " + " | ".join(cells) + " |")
    return lines


def absolute_table(rows: Sequence[Row]) -> list[str]:
    """Markdown: medians over seeds of every metric, one row a set-up and policy."""
    lines = [
        "| set-up | policy | latency/s | throughput | queueing/s | longest wait/s | makespan/s "
        "| cold loads | n |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["setup"], row["policy"]), []).append(row)
    for (setup, policy), found in groups.items():
        medians = [median_interval([float(row[column]) for row in found])[0] for column in COLUMNS]
        shown = [
            f"{value:.2f}" if column == "throughput" else f"{value:.1f}"
            for column, value in zip(COLUMNS, medians, strict=True)
        ]
        lines.append(f"| {setup} | {policy} | " + " | ".join(shown) + f" | {len(found)} |")
    return lines


def ablation_table(paper: Sequence[Row], ablation: Sequence[Row]) -> list[str]:
    """Markdown: each variant over plain umsh, seed by seed; above 1 means umsh is better."""
    lines = [
        "| set-up | variant | " + " | ".join(head for head, _, _ in METRICS.values()) + " |",
        "|---|---|" + "---|" * len(METRICS),
    ]
    setups = ("4 GPU warm", "4 GPU cold")
    rows = [*(row for row in paper if row["setup"] in setups), *ablation]
    variants = list(dict.fromkeys(row["policy"] for row in rows if row["policy"] != "umsh"))
    for setup in setups:
        for variant in variants:
            cells = [_cell(ratios(rows, setup, "umsh", variant, metric)) for metric in METRICS]
            lines.append(f"| {setup} | {variant} | " + " | ".join(cells) + " |")
    return lines


def oracle_table(rows: Sequence[Row]) -> list[str]:
    """Markdown: distance of each policy to the best schedule of the batch."""
    lines = [
        "| policy | batches | mean over best | median | 90 % of batches below | worst | within 10 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for policy in dict.fromkeys(row["policy"] for row in rows):
        gaps = sorted(
            float(row["total_s"]) / float(row["best_s"]) - 1.0
            for row in rows
            if row["policy"] == policy and row["proven"] == "1"
        )
        within = sum(gap <= 0.10 for gap in gaps) / len(gaps)
        lines.append(
            f"| {policy} | {len(gaps)} | {sum(gaps) / len(gaps):.1%} | {gaps[len(gaps) // 2]:.1%} "
            f"| {gaps[int(0.9 * len(gaps))]:.1%} | {gaps[-1]:.1%} | {within:.0%} |"
        )
    return lines


def tables() -> dict[str, str]:
    """File name -> Markdown of every table under docs/lan."""
    paper = read("paper.csv")
    starts = ("warm", "cold")
    setups = [f"{gpus} GPU {start}" for start in starts for gpus in (1, 2, 3, 4)]
    makers: dict[str, tuple[str, Callable[[], list[str]]]] = {
        "targets.md": ("umsh against the targets at 4 GPUs", lambda: reached_table(paper, starts)),
        "ratios.md": (
            "improvement over FGD and Mudi-style, median [95 % interval]",
            lambda: ratio_table(paper, setups, ("umsh", "gleam")),
        ),
        "fresh.md": (
            "the same on 30 seeds not used in development, median [95 % interval]",
            lambda: ratio_table(read("fresh.csv"), setups[3::4], ("umsh", "gleam")),
        ),
        "paper.md": ("set-ups of paper table 6, medians", lambda: absolute_table(paper)),
        "ablation.md": (
            "variant over umsh, median [95 % interval]; above 1: umsh is better",
            lambda: ablation_table(paper, read("ablation.csv")),
        ),
        "no-cache.md": (
            "without any weight cache, medians",
            lambda: absolute_table([row for row in read("ablation.csv") if "no weight" in row["setup"]]),
        ),
        "assumed.md": ("what is assumed, varied, medians", lambda: absolute_table(read("assumed.csv"))),
        "beyond.md": ("beyond the paper, medians", lambda: absolute_table(read("beyond.csv"))),
        "scale.md": ("100 servers and 1,000 clients, medians", lambda: absolute_table(read("scale.csv"))),
        "oracle.md": (
            "summed latency over the best possible schedule",
            lambda: oracle_table(read("oracle.csv")),
        ),
    }
    head = "<!-- generated by `umsh-sched simulate --all`; do not edit -->\n\n"
    return {
        name: f"{head}Simulated: {title}.\n\n" + "\n".join(make()) + "\n"
        for name, (title, make) in makers.items()
    }
