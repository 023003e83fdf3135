"""Result files of the simulator: run experiments into CSV, read them back, check them against the code."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from umsh.lan.cluster import Link
from umsh.lan.errors import LanInputError
from umsh.lan.oracle import Batch, best, run_policy
from umsh.lan.policies import make
from umsh.lan.profiles import ROUTER, load_profiles
from umsh.lan.sim.experiments import EXPERIMENTS, Case, paper
from umsh.lan.sim.run import run

RESULTS = Path(__file__).parents[1] / "results"
Row = dict[str, str]
ORACLE_POLICIES = ("umsh", "gleam", "fgd", "mudi", "fair")
ORACLE_CASES = 40
CHECKED = ("paper", "fresh", "ablation", "assumed", "beyond")  # `scale` takes minutes
QUANTILES = 100


def run_cases(cases: Iterable[Case], seen: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """One row for each case and policy: simulated."""
    for case in cases:
        for policy in case.policies:
            summary, _ = run(case.scenario, policy)
            seen(f"{case.experiment} {case.label} seed {case.scenario.seed} {policy}")
            head = {
                "experiment": case.experiment,
                "setup": case.label,
                "policy": policy,
                "seed": str(case.scenario.seed),
            }
            yield head | {
                key: f"{value:.4f}".rstrip("0").rstrip(".") for key, value in asdict(summary).items()
            }


def run_inference_times(gpus: Iterable[int] = (2, 4), seeds: int = 30) -> Iterator[Row]:
    """Quantiles of per-task inference time over all seeds (figure 20's analogue): simulated."""
    profiles_cases = [case for case in paper(seeds) if case.label in {f"{n} GPU warm" for n in gpus}]
    for label in sorted({case.label for case in profiles_cases}):
        for policy in ("umsh", "gleam", "fgd", "mudi"):
            times = sorted(
                done.end_s - done.infer_from_s
                for case in profiles_cases
                if case.label == label
                for done in run(case.scenario, policy)[1].done
            )
            for q in range(QUANTILES + 1):
                value = times[min(len(times) - 1, q * len(times) // QUANTILES)]
                yield {
                    "setup": label,
                    "policy": policy,
                    "quantile": f"{q / QUANTILES:.2f}",
                    "infer_s": f"{value:.3f}",
                }


def oracle_batch(seed: int, requests: int, servers: int) -> Batch:
    """A small random batch: up to three types, some of them cached, one 1 Gb/s link."""
    profiles, rng = load_profiles(), random.Random(f"{seed}/{requests}/{servers}/oracle")
    chosen = tuple(rng.sample(profiles.servers, servers))
    able = [
        name
        for name, kind in sorted(profiles.types.items())
        if any(s.gpu in kind.cells and s.memory_mb >= kind.memory_mb for s in chosen)
    ]
    names, cached = rng.sample(able, min(3, len(able))), []
    for server in chosen:
        free_mb, held = server.memory_mb, set()
        for name in rng.sample(names, len(names)):
            kind = profiles.types[name]
            if server.gpu in kind.cells and kind.shared_mb <= free_mb and rng.random() > 0.3:
                held.add(name)
                free_mb -= kind.shared_mb
        cached.append(frozenset(held))
    drawn = tuple(rng.choice(names) for _ in range(requests))
    return Batch(profiles.types, chosen, {ROUTER: Link(ROUTER, 1000.0)}, drawn, tuple(cached))


def run_oracle(cases: int = ORACLE_CASES) -> Iterator[Row]:
    """Summed latency of small batches under each policy over the best possible: simulated."""
    for requests, servers in ((4, 2), (5, 2), (4, 3), (5, 3)):
        for seed in range(cases):
            batch = oracle_batch(seed, requests, servers)
            totals = {name: run_policy(batch, make(name).policy) for name in ORACLE_POLICIES}
            least = best(batch, min(totals.values()) + 1e-6)
            for name, total in totals.items():
                yield {
                    "requests": str(requests),
                    "servers": str(servers),
                    "seed": str(seed),
                    "policy": name,
                    "total_s": f"{total:.3f}",
                    "best_s": f"{least.total_s:.3f}",
                    "proven": str(int(least.proven)),
                }


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write rows as CSV; returns how many. Nothing is written for no rows."""
    listed = list(rows)
    if listed:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(listed[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(listed)
    return len(listed)


def read(name: str) -> list[Row]:
    """Read a committed result file; LanInputError if it is not there."""
    path = RESULTS / name
    if not path.is_file():
        raise LanInputError(
            f"there is no result file {name}.", "Nothing to report.", "Run umsh-sched simulate --all."
        )
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def drift(experiments: Sequence[str] = CHECKED, seeds: int = 1) -> list[str]:
    """Run the first seeds of experiments again and list what differs from the committed files."""
    found = []
    for name in experiments:
        committed = {(row["setup"], row["policy"], row["seed"]): row for row in read(f"{name}.csv")}
        for row in run_cases(EXPERIMENTS[name](seeds)):
            key = row["setup"], row["policy"], row["seed"]
            known = committed.get(key)
            if known is None:
                found.append(f"{key} is not in {name}.csv")
                continue
            for column in row.keys() - {"experiment", "setup", "policy", "seed"}:
                if not math.isclose(float(row[column]), float(known[column]), rel_tol=1e-4, abs_tol=1e-3):
                    found.append(f"{name} {key} {column}: committed {known[column]}, now {row[column]}")
    return found
