"""The programs of the study: one overlapped pair, transfers that queue, and a replay of requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from casestudies.kv_fabric.trace import KV_NBYTES_PER_TOKEN, Request
from umsh.fabric.experiments.lab import Lab, Program, RawTicket, Ticket
from umsh.fabric.experiments.results import Row, percentiles_ms
from umsh.fabric.experiments.schemes import Make, Paced, Role

LINK = "d2h:0"
PREFILL_TOKENS_PER_S = 36_000
"""2 x 8.2e9 operations a token at 600e12 a second: Qwen3-8B on one H200, attention left out."""
DECODE_S = 5e-3
"""First decode step: the weights once through memory."""
KV = Role("kv", urgent=True, target_ms=40.0)
OFFLOAD = Role("offload")


def bound(kv_nbytes: float, offload_nbytes: float) -> float:
    """Most that flow time can fall below fair sharing for one overlapped pair: 1 - K / min(2K, K + O)."""
    return 1 - kv_nbytes / min(2 * kv_nbytes, kv_nbytes + offload_nbytes)


class Buffers:
    """Device keys and values, host memory for the transfer and the offload; reused by all runs."""

    def __init__(self, lab: Lab, nbytes_max: int) -> None:
        self.lab = lab
        self.device, self.kv_host, self.offload_host = (
            lab.device(nbytes_max), lab.host(nbytes_max), lab.host(nbytes_max),
        )  # fmt: skip
        lab.fill_device(self.device, nbytes_max)


def pair(buffers: Buffers, make: Make, kv_nbytes: int, offload_nbytes: int, prefill: bool = False) -> Row:
    """Prefill (if asked for), then the transfer and the offload at once, the offload first in line."""
    lab = buffers.lab
    scheme = make(lab)
    ended: dict[str, float] = {}
    stream = lab.backend.open_stream(0)

    def one(role: Role, host: int, nbytes: int, lag_s: float) -> Program:
        yield lag_s
        began = lab.now()
        yield scheme.copy(role, LINK, host, buffers.device, nbytes)
        ended[role.name] = lab.now() - began

    def warm() -> Program:  # the first copy of a flow makes streams and measures the link
        yield scheme.copy(KV, LINK, buffers.kv_host, buffers.device, 1 << 20)
        yield scheme.copy(OFFLOAD, LINK, buffers.offload_host, buffers.device, 1 << 20)

    prefill_s = kv_nbytes / KV_NBYTES_PER_TOKEN / PREFILL_TOKENS_PER_S

    def prefilled() -> Program:
        began = lab.now()
        lab.compute(stream, prefill_s)
        yield RawTicket(lab.backend, lab.backend.record(stream))
        ended["prefill"] = lab.now() - began

    lab.run(warm())
    lab.poison(buffers.kv_host, kv_nbytes)
    lab.poison(buffers.offload_host, offload_nbytes)
    if prefill:
        lab.run(prefilled())
    lab.run(
        one(OFFLOAD, buffers.offload_host, offload_nbytes, 0.0),
        one(KV, buffers.kv_host, kv_nbytes, 100e-6),
    )
    row: Row = {"scheme": scheme.name, "kv_gb": kv_nbytes / 1e9, "offload_gb": offload_nbytes / 1e9}
    row |= {"kv_ms": ended["kv"] * 1e3, "offload_ms": ended["offload"] * 1e3}
    row["offload_gbps"] = offload_nbytes / max(ended["kv"], ended["offload"]) / 1e9
    intact = [lab.intact(buffers.kv_host, kv_nbytes), lab.intact(buffers.offload_host, offload_nbytes)]
    row["exact"] = all(intact)
    if prefill:
        row["ttft_ms"] = (ended["prefill"] + ended["kv"] + DECODE_S) * 1e3
        row["kv_share_of_ttft"] = row["kv_ms"] / row["ttft_ms"]
    row["direction_changes"] = _changes(scheme)
    scheme.close()
    return row


def queued(
    buffers: Buffers, make: Make, sizes: list[int], offload_share: float, load: float, seed: int = 2
) -> Row:
    """Transfers of `sizes` at random times, each with its offload, so that the link is busy for `load`."""
    lab = buffers.lab
    scheme = make(lab)
    rng = np.random.default_rng(seed)
    capacity = lab.backend.capacity_bps(LINK)
    mean_s = float(np.mean(sizes)) * (1 + offload_share) / capacity / load
    flow_s: list[float] = []
    waiting: list[Ticket] = []

    def arrivals() -> Program:
        for nbytes in sizes:
            yield float(rng.exponential(mean_s))
            offload = scheme.copy(
                OFFLOAD, LINK, buffers.offload_host, buffers.device, int(nbytes * offload_share)
            )
            began = lab.now()
            copy = scheme.copy(KV, LINK, buffers.kv_host, buffers.device, nbytes)
            copy.add_done_callback(lambda _, began=began: flow_s.append(lab.now() - began))
            waiting.extend((offload, copy))
        yield from waiting

    began = lab.now()
    lab.run(arrivals())
    row = {"scheme": scheme.name, "transfers": len(sizes), "load": load, "offload_share": offload_share}
    row |= {"kv_mean_ms": float(np.mean(flow_s)) * 1e3, "seconds": lab.now() - began}
    row["direction_changes"] = _changes(scheme)
    scheme.close()
    return row


def replay(buffers: Buffers, make: Make, requests: list[Request], offload_share: float) -> Row:
    """Requests through one prefill device; each sends its new keys and values on and offloads a share of
    them."""
    lab = buffers.lab
    scheme = make(lab)
    capacity = lab.backend.capacity_bps(LINK)
    stream = lab.backend.open_stream(0)
    flow_s: list[float] = []
    ttft_s: list[float] = []
    misses = [0]
    offloads: list[tuple[Ticket, int]] = []
    copies: list[Ticket] = []

    def ended(request: Request, began: float, arrived: float) -> None:
        taken = lab.now() - began
        flow_s.append(taken)
        ttft_s.append(lab.now() - arrived + DECODE_S)
        misses[0] += taken > 1.1 * request.kv_nbytes / capacity + 2e-3

    def worker() -> Program:
        start = lab.now()
        for request in requests:
            arrived = start + request.arrival_s
            if lab.now() < arrived:
                yield arrived - lab.now()
            lab.compute(stream, request.new_tokens / PREFILL_TOKENS_PER_S)
            yield RawTicket(lab.backend, lab.backend.record(stream))
            offload_nbytes = max(1, int(request.kv_nbytes * offload_share))
            offload = scheme.copy(OFFLOAD, LINK, buffers.offload_host, buffers.device, offload_nbytes)
            began = lab.now()
            copy = scheme.copy(KV, LINK, buffers.kv_host, buffers.device, request.kv_nbytes)
            copy.add_done_callback(
                lambda _, request=request, began=began, arrived=arrived: ended(request, began, arrived)
            )
            offloads.append((offload, offload_nbytes))
            copies.append(copy)
        yield from [*copies, *(ticket for ticket, _ in offloads)]

    began = lab.now()
    lab.run(worker())
    row: Row = {"scheme": scheme.name, "requests": len(requests), "seconds": lab.now() - began}
    row |= {f"kv_{key}": value for key, value in percentiles_ms(flow_s).items() if key != "n"}
    row["kv_mean_ms"] = float(np.mean(flow_s)) * 1e3
    row |= {"ttft_mean_ms": float(np.mean(ttft_s)) * 1e3, "ttft_p99_ms": percentiles_ms(ttft_s)["p99_ms"]}
    row |= {"goal_misses": misses[0], "offload_gb": sum(nbytes for _, nbytes in offloads) / 1e9}
    row["direction_changes"] = _changes(scheme)
    scheme.close()
    return row


def _changes(scheme: Any) -> int | None:
    """Turns of the loop, for schemes that have one."""
    if not isinstance(scheme, Paced) or LINK not in scheme.fabric.core.engines:
        return None
    return int(scheme.fabric.stats()["links"][LINK]["direction_changes"])
