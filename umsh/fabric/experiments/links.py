"""E2, E2b and E3: who disturbs whom, by direction, device and kind of copier."""

from __future__ import annotations

from collections.abc import Callable

from umsh.fabric.backend import Segments
from umsh.fabric.copy_engine import MachineModel
from umsh.fabric.experiments.lab import Lab, Program, RawTicket
from umsh.fabric.experiments.results import Row

GIB = 1 << 30
LOADS = 96
"""Pieces of an aggressor, a sixteenth of the victim each: it outlasts the victim at a third of the link."""
MATRIX_PREDICTION = (
    "A copy loses half its bandwidth to a kernel that copies in its direction, about 8 % to one in the "
    "other, nothing to another device's. SM zero-copy stands in for RDMA: it bypasses the copy engine."
)
HBM_BPS = 4.3e12
HBM_PREDICTION = (
    "Peer copies of 395 GB/s beside a triad at 4.3 TB/s cost it 9 % one way and 18 % both ways while they "
    "overlap, less when they are shorter than it; the published DGX-H100 figures are 20 % and 3 to 10 %."
)


def matrix(lab_of: Callable[[], Lab], nbytes: int = GIB // 2) -> list[Row]:
    """E2 and, in the model only, E2b: bandwidth of a copy beside an aggressor, as a share of its bandwidth
    alone."""
    rows: list[Row] = []
    for victim in ("h2d:0", "d2h:0"):
        opposite = {"h2d:0": "d2h:0", "d2h:0": "h2d:0"}[victim]
        aggressors: dict[str, list[tuple[str, str]]] = {
            "none": [],
            "copy engine, same direction": [("ce", victim)],
            "copy engine, other direction": [("ce", opposite)],
            "kernel, same direction": [("sm", victim)],
            "kernel, other direction": [("sm", opposite)],
            "kernels, both directions": [("sm", victim), ("sm", opposite)],
        }
        if lab_of().label == "modelled":
            aggressors["copy engine, other device"] = [("ce", victim.replace(":0", ":1"))]
        alone = _beside(lab_of(), victim, [], nbytes)
        for name, loads in aggressors.items():
            gbps = _beside(lab_of(), victim, loads, nbytes)
            rows.append({"name": f"{victim} beside {name}", "gbps": gbps, "of_alone": gbps / alone})
    return rows


def _beside(lab: Lab, victim: str, loads: list[tuple[str, str]], nbytes: int) -> float:
    """GB/s of a copy of `nbytes` in 32 pieces while each load goes on."""
    backend = lab.backend
    host, device = lab.host(nbytes), lab.device(nbytes)
    streams = []
    for kind, link in loads:
        stream = backend.open_stream(int(link[-1]))
        streams.append(stream)
        for _ in range(LOADS):
            if kind == "sm":
                lab.kernel_copy(stream, link, nbytes // 16)
            else:
                ends = (device, host) if link.startswith("h2d") else (host, device)
                backend.copy(link, stream, Segments([ends[0]], [ends[1]], [nbytes // 16]))
                backend.wait_event(stream, backend.record(stream))
    stream = backend.open_stream(0)
    done_s: list[float] = []

    def program() -> Program:
        began = lab.now()
        for _ in range(32):
            ends = (device, host) if victim.startswith("h2d") else (host, device)
            backend.copy(victim, stream, Segments([ends[0]], [ends[1]], [nbytes // 32]))
            ticket = RawTicket(backend, backend.record(stream))
            yield ticket
        done_s.append(lab.now() - began)

    lab.run(program())
    rest = [RawTicket(backend, backend.record(load)) for load in streams]
    lab.run(iter_tickets(rest))
    return nbytes / done_s[0] / 1e9


def iter_tickets(tickets: list[RawTicket]) -> Program:
    """Waits for all: the aggressors must not run on into the next measurement."""
    yield from tickets


def hbm() -> list[Row]:
    """E3 in the model: a triad of 10 ms beside peer copies, memory bandwidth shared byte by byte."""
    triad_s, peer_bps = 10e-3, MachineModel().p2p_bps
    rows = []
    for ways in (1, 2):
        for name, length in (("shorter", 0.3), ("equal", 1.0), ("longer", 3.0)):
            slowed = HBM_BPS - ways * peer_bps
            overlap_s = min(length * triad_s, triad_s * HBM_BPS / slowed)
            done = overlap_s * slowed / HBM_BPS
            total_s = overlap_s + max(0.0, triad_s - done)
            row: Row = {"ways": ways, "transfer": name, "triad_loss": 1 - triad_s / total_s}
            rows.append(row | {"name": f"{ways} way(s), transfer {name}"})
    return rows
