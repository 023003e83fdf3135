"""E2, E2b and E3: who disturbs whom, by direction, device and kind of copier."""

from __future__ import annotations

from umsh.fabric.copy_engine import MachineModel
from umsh.fabric.experiments.lab import Lab, Program, VirtualLab
from umsh.fabric.experiments.results import Row

GIB = 1 << 30
MATRIX_PREDICTION = (
    "A copy loses half its bandwidth to a kernel that copies in its direction, about 8 % to one in the "
    "other, nothing to another device's. SM zero-copy traffic stands in for RDMA: it bypasses the copy engine."
)
HBM_BPS = 4.3e12
HBM_PREDICTION = (
    "Peer copies of 395 GB/s beside a triad at 4.3 TB/s cost it 9 % one way and 18 % both ways while they "
    "overlap, less when they are shorter than it; the published DGX-H100 figures are 20 % and 3 to 10 %."
)


def matrix(seconds_nbytes: int = 2 * GIB) -> list[Row]:
    """E2 and E2b in the model: bandwidth of a copy beside an aggressor, as a share of its bandwidth alone."""
    rows = []
    for victim in ("h2d:0", "d2h:0"):
        opposite = {"h2d:0": "d2h:0", "d2h:0": "h2d:0"}[victim]
        aggressors = {
            "none": [],
            "copy engine, same direction": [("ce", victim)],
            "copy engine, other direction": [("ce", opposite)],
            "kernel, same direction": [("sm", victim)],
            "kernel, other direction": [("sm", opposite)],
            "kernels, both directions": [("sm", victim), ("sm", opposite)],
            "copy engine, other device": [("ce", victim.replace(":0", ":1"))],
        }
        for name, loads in aggressors.items():
            rows.append({"victim": victim, "aggressor": name, "gbps": _beside(victim, loads, seconds_nbytes)})
        alone = rows[-len(aggressors)]["gbps"]
        for row in rows[-len(aggressors) :]:
            row["of_alone"] = row["gbps"] / alone
            row["name"] = f"{row['victim']} beside {row['aggressor']}"
    return rows


def _beside(victim: str, loads: list[tuple[str, str]], nbytes: int) -> float:
    """GB/s of a copy of `nbytes` in 32 pieces while each load goes on."""
    lab: Lab = VirtualLab()
    backend = lab.backend
    host, device = lab.host(nbytes), lab.device(nbytes)
    from umsh.fabric.backend import Segments

    for kind, link in loads:
        stream = backend.open_stream(int(link[-1]))
        for _ in range(256):
            if kind == "sm":
                backend.sm_copy(stream, link, nbytes // 16)  # type: ignore[attr-defined]
            else:
                backend.copy(link, stream, Segments([device], [host], [nbytes // 16]))
                backend.wait_event(stream, backend.record(stream))
    stream = backend.open_stream(0)
    from umsh.fabric.experiments.lab import RawTicket

    done_s = []

    def program() -> Program:
        began = lab.now()
        for _ in range(32):
            backend.copy(victim, stream, Segments([device], [host], [nbytes // 32]))
            ticket = RawTicket(backend, backend.record(stream))
            yield ticket
        done_s.append(lab.now() - began)

    lab.run(program())
    return nbytes / done_s[0] / 1e9


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
