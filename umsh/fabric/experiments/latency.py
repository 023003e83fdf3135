"""E1: what a small urgent copy waits beside bulk, by each way of sharing, and what bulk keeps."""

from __future__ import annotations

from collections import deque

from umsh.fabric.experiments.lab import Lab, Program, Ticket
from umsh.fabric.experiments.results import Row, percentiles_ms
from umsh.fabric.experiments.schemes import FABRIC, RAW, Make, Paced, Role, Scheme

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
VICTIM_NBYTES, EVERY_S = 256 * KIB, 1e-3
LINK = "h2d:0"
PREDICTION = (
    "Plain streams, stream priority and naive chunks starve the victim until bulk ends (hundreds of ms); "
    "gaps let it in after one or two chunks at a loss for bulk; the fabric keeps its p99 below p99 alone + "
    "2 chunk times + 0.1 ms while bulk keeps 97 % of its bandwidth alone."
)
VICTIM = Role("victim", urgent=True, target_ms=1.0)
BULK = Role("bulk")


class Rig:
    """Buffers and the two programs: a victim every ms, and bulk that always has `queued` copies waiting."""

    def __init__(self, lab: Lab, seconds: float, bulk_nbytes: int = GIB) -> None:
        self.lab, self.seconds, self.bulk_nbytes = lab, seconds, bulk_nbytes
        self.bulk_host, self.bulk_device = lab.host(bulk_nbytes), lab.device(bulk_nbytes)
        self.victim_host, self.victim_device = lab.host(VICTIM_NBYTES), lab.device(VICTIM_NBYTES)
        self.latencies_s: list[float] = []
        self.bulk_bps = 0.0

    def victim(self, scheme: Scheme) -> Program:
        now = self.lab.now
        yield 0.02  # bulk is on its way
        end, due = now() + self.seconds - 0.04, now()
        while now() < end:
            began = now()
            yield scheme.copy(VICTIM, LINK, self.victim_device, self.victim_host, VICTIM_NBYTES)
            self.latencies_s.append(now() - began)
            due = max(due + EVERY_S, now())
            yield due - now()

    def bulk(self, scheme: Scheme, queued: int) -> Program:
        now = self.lab.now
        began, moved = now(), 0
        waiting: deque[Ticket] = deque()
        while now() - began < self.seconds:
            while len(waiting) < queued:
                waiting.append(scheme.copy(BULK, LINK, self.bulk_device, self.bulk_host, self.bulk_nbytes))
            yield waiting.popleft()
            moved += self.bulk_nbytes
        while waiting:
            yield waiting.popleft()
            moved += self.bulk_nbytes
        self.bulk_bps = moved / (now() - began)

    def interpreter(self) -> Program:
        """Python code that never waits: what a busy main thread does to the dispatcher's polling."""
        end, count = self.lab.now() + self.seconds, 0
        while self.lab.now() < end:
            count += sum(range(200))
        yield 0.0

    def run(self, make: Make, queued: int, victim: bool = True, bulk: bool = True, busy: bool = False) -> Row:
        """One way of sharing; checks the bytes afterwards."""
        self.latencies_s, self.bulk_bps = [], 0.0
        scheme = make(self.lab)
        programs = (
            [self.victim(scheme)] * victim + [self.bulk(scheme, queued)] * bulk + [self.interpreter()] * busy
        )
        self.lab.run(*programs)
        scheme.close()
        exact = self.lab.same(self.victim_host, self.victim_device, VICTIM_NBYTES) if victim else True
        row = {"scheme": scheme.name, **percentiles_ms(self.latencies_s), "exact": exact}
        return row | {"bulk_gbps": self.bulk_bps / 1e9 if bulk else None}


def chunked(mib: int) -> Make:
    """The fabric with chunks of `mib` MiB."""
    return lambda lab: Paced(lab, f"fabric, {mib} MiB chunks", chunk_nbytes=mib * MIB)


def run(lab: Lab, seconds: float = 1.5) -> list[Row]:
    """All ways, one row each; the first two are the victim and bulk alone."""
    rig = Rig(lab, seconds)
    plain = RAW["plain streams"]
    rows = [
        rig.run(plain, 4, bulk=False) | {"scheme": "victim alone, plain stream"},
        rig.run(plain, 4, victim=False) | {"scheme": "bulk alone, plain stream"},
        rig.run(FABRIC, 2, bulk=False) | {"scheme": "victim alone, fabric"},
    ]
    rows += [rig.run(RAW[name], 4) for name in RAW if name != "chunks with gaps" or lab.label == "modelled"]
    rows += [rig.run(chunked(mib), 2) for mib in (4, 8, 16)]
    if lab.label == "measured":
        rows.append(rig.run(FABRIC, 2, busy=True) | {"scheme": "fabric, 8 MiB chunks, busy interpreter"})
    alone, most = rows[0]["p99_ms"], rows[1]["bulk_gbps"]
    for row in rows[3:]:
        mib = int(row["scheme"].split()[1]) if row["scheme"].startswith("fabric,") else 8
        row["bulk_share"] = row["bulk_gbps"] / most
        row["limit_ms"] = alone + 2 * mib * MIB / (most * 1e9) * 1e3 + 0.1
        if row["p99_ms"] is not None:
            row["holds"] = row["p99_ms"] <= row["limit_ms"] and row["bulk_share"] >= 0.97
    return rows
