"""E6, E7 and what callers pay: one flow alone, counters, many pieces, the policy."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from umsh.fabric.experiments.lab import Lab, Program, RealLab, VirtualLab
from umsh.fabric.experiments.results import Row, percentiles_ms
from umsh.fabric.experiments.schemes import FABRIC, RAW, Make, Role
from umsh.fabric.fabric import Fabric
from umsh.fabric.policy import FlowState, LinkState, Snapshot, decide
from umsh.fabric.signals import Sample, Source

GIB, KIB = 1 << 30, 1 << 10
PIECES = 15_000
EACH_ROUND = 1
"""GiB a round of E7, so that a counter of 32 bits of bytes does not wrap."""
ALONE_PREDICTION = "One flow alone through the fabric loses at most 2 % against a plain copy of 1 GiB."
SUBMIT_PREDICTION = (
    "Submitting 15,000 pieces of 64 KiB takes the caller at most 5 ms; contiguous, reversed and shuffled "
    "ones are merged to within 10 % of one copy; strided ones pay for their batches."
)
HOST_PREDICTION = "One policy step for 100 flows takes at most 200 us; submitting 15,000 pieces at most 5 ms."
COUNTERS_PREDICTION = "Counters exceed own bytes by packet headers (3 to 12 %); own bytes tell the unit."


def alone(lab: Lab, rounds: int = 10) -> list[Row]:
    """E6: the same copy plain and through the fabric, in turn; share of one processor used by all threads."""
    host, device = lab.host(GIB), lab.device(GIB)
    rows: list[Row] = []
    makes: list[tuple[str, Make, Role]] = [
        ("plain copy", RAW["plain streams"], Role("alone")),
        ("fabric, one flow with a goal", FABRIC, Role("alone", urgent=True, target_ms=1000)),
    ]
    for name, make, role in makes:
        scheme = make(lab)
        taken: list[float] = []

        def program(scheme: Any = scheme, role: Role = role, taken: list[float] = taken) -> Program:
            for _ in range(rounds + 1):
                began = lab.now()
                yield scheme.copy(role, "h2d:0", device, host, GIB)
                taken.append(lab.now() - began)

        cpu, wall = time.process_time(), time.perf_counter()
        lab.run(program())
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        scheme.close()
        median = float(np.median(taken[1:]))
        row: Row = {"way": name, "n": rounds, "median_ms": median * 1e3, "gbps": GIB / median / 1e9}
        rows.append(row | {"exact": lab.same(host, device, GIB), "cpu": cpu / wall if _real(lab) else None})
    rows[1]["loss"] = rows[1]["median_ms"] / rows[0]["median_ms"] - 1
    return rows


def submit(lab: Lab, rounds: int = 5) -> list[Row]:
    """15,000 pieces of 64 KiB by layout: time of the call on the caller's thread, and of the whole."""
    size = 64 * KIB
    host, device = lab.host(2 * PIECES * size), lab.device(2 * PIECES * size)
    index = np.arange(PIECES, dtype=np.int64)
    layouts = {
        "one copy": (index[:1], PIECES * size, 1),
        "contiguous": (index, size, 1),
        "reversed": (index[::-1], size, 1),
        "shuffled": (np.random.default_rng(1).permutation(index), size, 1),
        "stride 2": (index, size, 2),
        "stride 2, 8 KiB": (index, 8 * KIB, 2),
    }
    rows: list[Row] = []
    fabric = Fabric(lab.backend)
    flow = fabric.flow("load", priority=0)
    for name, (order, nbytes, spread) in layouts.items():
        starts = order * nbytes * spread
        sizes = np.full(len(order), nbytes, np.int64)
        called: list[float] = []
        whole: list[float] = []

        def program(
            starts: Any = starts, sizes: Any = sizes, called: Any = called, whole: Any = whole
        ) -> Program:
            for _ in range(rounds + 1):
                began = lab.now()
                clock = time.perf_counter()
                copy = flow.copy_many(device + starts, host + starts, sizes, ordered=False)
                called.append(time.perf_counter() - clock)
                yield copy
                whole.append(lab.now() - began)

        lab.run(program())
        total = int(sizes.sum())
        median = float(np.median(whole[1:]))
        row: Row = {"layout": name, "pieces": len(order), "piece_nbytes": nbytes, "n": rounds}
        row |= {"whole_ms": median * 1e3, "gbps": total / median / 1e9}
        if _real(lab):  # a time of this processor has no place among a model's
            row |= {"submit_ms": float(np.median(called[1:])) * 1e3, "submit_max_ms": max(called[1:]) * 1e3}
        rows.append(row)
    fabric.close()
    for row in rows:
        row["of_one_copy"] = row["gbps"] / rows[0]["gbps"]
    return rows


def policy(flows: int = 100, rounds: int = 300) -> list[Row]:
    """Time of `decide` for many flows on four links, half with goals, some of them missed."""
    links = tuple(LinkState(name, 55e9) for name in ("h2d:0", "d2h:0", "h2d:1", "d2h:1"))
    states = tuple(
        FlowState(
            f"flow {i}", links[i % 4].name, i % 3, 0.04 if i % 2 else None, 1e8, 5e8, 10**9, 0.01, 10**8,
            0.08 if i % 6 == 1 else 0.02, 2e9 if i % 5 == 0 else None,
        )
        for i in range(flows)
    )  # fmt: skip
    snapshot = Snapshot(links, states, {})
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        decide(snapshot)
        taken.append(time.perf_counter() - began)
    return [{"what": f"policy step, {flows} flows", **percentiles_ms(taken)}]


def calls(rounds: int = 20) -> list[Row]:
    """Time of `copy_many` on the caller's thread for 15,000 pieces, by layout, over a backend that costs
    nothing."""
    lab = VirtualLab()
    size = 64 * KIB
    host, device = lab.host(2 * PIECES * size), lab.device(2 * PIECES * size)
    index = np.arange(PIECES, dtype=np.int64) * size
    shuffled = np.random.default_rng(1).permutation(index)
    sizes = np.full(PIECES, size, np.int64)
    rows: list[Row] = []
    flow = Fabric(lab.backend).flow("load", priority=0)
    for name, starts in (("contiguous", index), ("shuffled", shuffled), ("stride 2", 2 * index)):
        taken = []
        for _ in range(rounds):
            began = time.perf_counter()
            copy = flow.copy_many(device + starts, host + starts, sizes, ordered=False)
            taken.append(time.perf_counter() - began)
            copy.wait(None)
        rows.append({"what": f"copy_many, {PIECES} pieces, {name}", **percentiles_ms(taken)})
    return rows


def on_this_processor() -> list[Row]:
    """What the host's side costs: the policy and the submission, no device involved."""
    return policy() + calls()


class ModelCounter:
    """The modelled links' own counters, as hardware would show them: headers included, 32 bits."""

    name = "model counter"
    HEADERS = 1.06

    def __init__(self, machine: Any) -> None:
        self._machine = machine

    def read(self) -> Iterable[Sample]:
        for name, link in self._machine.links.items():
            link.progress()
            yield Sample(name, counter=int(link.carried_nbytes * self.HEADERS) % (1 << 32), bits=32)


def counters(lab: Lab, rounds: int = 8) -> list[Row]:
    """E7: what each source says of a link that carries known bytes, and of foreign bytes beside them."""
    if _real(lab):
        from umsh.fabric import nvml

        sources: list[Source] = nvml.sources(0)
    else:
        sources = [ModelCounter(lab.backend.machine)]  # type: ignore[attr-defined]
    host, device = lab.host(GIB), lab.device(GIB)
    other_host, other_device = lab.host(GIB), lab.device(GIB)
    fabric, foreign = Fabric(lab.backend), RAW["plain streams"](lab)
    flow = fabric.flow("own", priority=0)
    sampler = fabric.watch([])  # the thread idles; samples are taken by hand below, at known times
    sampler.sources = []
    rows: list[Row] = []

    def program() -> Program:
        for round_ in range(rounds):
            began = lab.now()
            beside = round_ >= rounds // 2
            for _ in range(EACH_ROUND):
                copies = [flow.copy(device, host, nbytes=GIB, ordered=False)]
                if beside:
                    yield foreign.copy(Role("foreign"), "h2d:0", other_device, other_host, GIB)
                yield copies[0]
            elapsed_s = lab.now() - began
            for source in sources:
                for sample in source.read():
                    verdict = sampler.estimator.take(source.name, sample, lab.backend.now())
                    if verdict is not None and sample.link == "h2d:0":
                        known = EACH_ROUND * GIB / elapsed_s / 1e9
                        rows.append(
                            {"round": round_, "source": source.name, "own_gbps": known,
                             "true_foreign_gbps": known if beside else 0.0, "believed": verdict.believed,
                             "foreign_gbps": verdict.foreign_bps / 1e9, "why": verdict.why}
                        )  # fmt: skip

    lab.run(program())
    fabric.close()
    return rows


def _real(lab: Lab) -> bool:
    return isinstance(lab, RealLab)
