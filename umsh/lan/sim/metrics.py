"""What one simulated run amounts to: latency, throughput, queueing, makespan (paper section 7.1)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from umsh.lan.sim.parts import Done, Outcome
from umsh.lan.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Summary:
    """One run, simulated; times in s.

    `throughput` sums over clients the uncontended inference time of their requests over the time the client
    took for them: requests a minute normalised by latency without contention, in clients' worth.
    """

    latency_s: float
    latency_p95_s: float
    throughput: float
    queueing_s: float
    queueing_max_s: float
    makespan_s: float
    cold_loads: int
    done: int
    refused: int
    requeued: int


def summarise(scenario: Scenario, outcome: Outcome, requeued: int = 0) -> Summary:
    """Reduce a run; all zero if nothing finished."""
    done = outcome.done
    if not done:
        return Summary(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, len(outcome.refused), requeued)
    latencies = sorted(entry.end_s - entry.submit_s for entry in done)
    queueing = [entry.placed_s - entry.submit_s for entry in done]
    return Summary(
        latency_s=statistics.fmean(latencies),
        latency_p95_s=latencies[min(len(latencies) - 1, int(0.95 * len(latencies)))],
        throughput=_throughput(scenario, done),
        queueing_s=statistics.fmean(queueing),
        queueing_max_s=max(queueing),
        makespan_s=max(entry.end_s for entry in done),
        cold_loads=sum(entry.cold for entry in done),
        done=len(done),
        refused=len(outcome.refused),
        requeued=requeued,
    )


def _throughput(scenario: Scenario, done: Sequence[Done]) -> float:
    present = {server.gpu for server in scenario.servers}
    alone_s = {
        name: statistics.fmean(cell.infer_s for gpu, cell in kind.cells.items() if gpu in present)
        for name, kind in scenario.truth.items()
        if present & kind.cells.keys()
    }
    work: dict[int, float] = {}
    end: dict[int, float] = {}
    for entry in done:
        work[entry.client] = work.get(entry.client, 0.0) + alone_s[entry.type]
        end[entry.client] = max(end.get(entry.client, 0.0), entry.end_s)
    return sum(work[client] / (end[client] - scenario.starts_s[client]) for client in work)


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval from order statistics, free of a distribution: (median, low, high)."""
    ordered = sorted(values)
    n = len(ordered)
    # The binomial(n, 1/2) normal approximation gives ranks (n -+ 1.96 sqrt(n)) / 2.
    spread = 0.98 * n**0.5
    low = ordered[max(0, int(n / 2 - spread))]
    high = ordered[min(n - 1, int(n / 2 + spread))]
    return statistics.median(ordered), low, high
