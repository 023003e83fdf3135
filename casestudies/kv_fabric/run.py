"""Run the study: `python -m casestudies.kv_fabric.run [--backend virtual|cuda] [--trace FILE]` from the
checkout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from casestudies.kv_fabric.study import Buffers, bound, pair, queued, replay
from casestudies.kv_fabric.trace import KV_NBYTES_PER_TOKEN as PER_TOKEN
from casestudies.kv_fabric.trace import TOKENS_MAX, generate, read
from umsh.fabric.experiments.__main__ import table
from umsh.fabric.experiments.lab import Lab, RealLab, VirtualLab
from umsh.fabric.experiments.results import Row, draw, save
from umsh.fabric.experiments.schemes import DELAY, FABRIC, FAIR, LOOP, RAW, Make, static_split

RESULTS = Path(__file__).parent / "results"
SIZES = tuple(int(gb * 1e9) // PER_TOKEN * PER_TOKEN for gb in (1.2, 2.4, 4.7, 9.4))
SHARES = (0.25, 0.5, 1.0)
SPLITS = (0.05, 0.1, 0.2, 0.3, 0.5)
PREDICTION = (
    "Against fair sharing, a pair's flow time falls by at least 0.9 of 1 - K/min(2K, K+O): 18 % at "
    "offload/KV 0.25, 30 % at 0.5, 45 % at 1; the gain in time to first token is that times the transfer's "
    "share of it; offload bytes stay within 2 %; the loop turns at most once a phase. Queues gain more."
)


def compared(rows: list[Row], fair: Row) -> list[Row]:
    """Add each row's gain over fair sharing, the bound, and what was reached of it."""
    for row in rows:
        row["bound"] = bound(row["kv_gb"], row["offload_gb"])
        row["gain"] = 1 - row["kv_ms"] / fair["kv_ms"]
        row["of_bound"] = row["gain"] / row["bound"]
        row["offload_kept"] = row["offload_gbps"] / fair["offload_gbps"]
        if "ttft_ms" in row:
            row["ttft_gain"] = 1 - row["ttft_ms"] / fair["ttft_ms"]
            row["ttft_of_expected"] = row["ttft_gain"] / (fair["kv_share_of_ttft"] * row["gain"] or 1)
    return rows


def best_of(buffers: Buffers, make: Make, kv: int, offload: int, prefill: bool, rounds: int) -> Row:
    """The median of `rounds` by flow time."""
    made = sorted(
        (pair(buffers, make, kv, offload, prefill) for _ in range(rounds)), key=lambda r: r["kv_ms"]
    )
    return made[len(made) // 2]


def pairs(buffers: Buffers, rounds: int) -> list[Row]:
    """Every size and share by every scheme; the static split is the best of its sweep, found offline."""
    rows: list[Row] = []
    for kv in SIZES:
        for share in SHARES:
            offload, prefill = int(kv * share), share == 0.5
            makes = [FAIR, FABRIC, LOOP, DELAY]
            if buffers.lab.label == "modelled":
                makes += list(RAW.values())
            these = [best_of(buffers, make, kv, offload, prefill, rounds) for make in makes]
            swept = [best_of(buffers, static_split(split), kv, offload, prefill, 1) for split in SPLITS]
            best = min(swept, key=lambda row: float(row["kv_ms"]))
            rows += compared([*these, best | {"scheme": best["scheme"] + " (swept)"}], these[0])
    return rows


def queues(buffers: Buffers) -> list[Row]:
    """60 transfers at 70 % load, by share."""
    rows: list[Row] = []
    sizes = [SIZES[i * 7 % 4] for i in range(60)]
    for share in SHARES if buffers.lab.label == "modelled" else (0.5,):
        these = [queued(buffers, make, sizes, share, 0.7) for make in (FAIR, FABRIC)]
        for row in these:
            row["gain"] = 1 - row["kv_mean_ms"] / these[0]["kv_mean_ms"]
        rows += these
    return rows


def picture(path: Path, rows: list[Row]) -> None:
    """Shares of the bound that each scheme reached online."""
    online = ("fabric", "delay injection", "loop without classes")
    kept = [
        row | {"what": f"{row['kv_gb']:.1f} + {row['offload_gb']:.1f} GB, {row['scheme']}"}
        for row in rows
        if row["scheme"] in online
    ]
    draw(path, kept, "what", "of_bound", "flow-time gain as a share of the bound", "share of the bound")


def main(
    backend: Annotated[str, typer.Option(help="virtual (the modelled server) or cuda")] = "virtual",
    trace: Annotated[
        Path | None, typer.Option(help="recorded requests (CSV) instead of generated ones")
    ] = None,
    seconds: Annotated[float, typer.Option(help="length of the replay")] = 60.0,
    only: Annotated[list[str] | None, typer.Option(help="pairs, queues or replay; all by default")] = None,
    rounds: Annotated[int, typer.Option(help="repetitions of each pair; the median is kept")] = 3,
    out: Annotated[Path, typer.Option(help="folder of the result files")] = RESULTS,
) -> None:
    """Pairs, queues and the replay; prints tables, writes JSON and pictures."""
    lab: Lab
    if backend == "cuda":
        from umsh.fabric.cuda import CudaBackend

        lab = RealLab(CudaBackend())
    else:
        lab = VirtualLab()
    console = Console()
    buffers = Buffers(lab, TOKENS_MAX * PER_TOKEN)
    requests = generate(seconds) if trace is None else read(trace, seconds)
    source = {"requests": "generated" if trace is None else f"recorded: {trace.name}"}
    parts: dict[str, Callable[[], list[Row]]] = {
        "pairs": lambda: pairs(buffers, 1 if lab.label == "modelled" else rounds),
        "queues": lambda: queues(buffers),
        "replay": lambda: [replay(buffers, make, requests, 0.5) for make in (FAIR, FABRIC)],
    }
    for name in only or list(parts):
        rows = parts[name]()
        path = save(out, name, lab.backend, PREDICTION, rows, source, "casestudies.kv_fabric.run")
        console.print(table(f"{name} ({lab.label})", rows))
        if name == "pairs":
            picture(path, rows)


if __name__ == "__main__":
    typer.run(main)
