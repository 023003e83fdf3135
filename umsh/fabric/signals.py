"""What else uses the links: hardware counters in a sampler thread, believed only when plausible and fresh.

Our own byte counts are the fast signal; a hardware average is useful for one thing only, traffic that is not
ours: counter minus own bytes. A counter that contradicts the bytes we know of is not believed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

PERIOD_S = 0.05
"""Short enough that a counter of 32 bits of bytes cannot wrap twice unseen on a link of 60 GB/s."""
FRESH_S = 0.3
UNITS = (1, 1024)
"""What a counter of unknown unit may count, in bytes."""
OVERHEAD_MOST = 1.25
"""Counters include packet headers: a reading may exceed the payload by this factor."""
LEAST = 0.9
"""A reading below this share of our own bytes is wrong."""
CALIBRATE_NBYTES = 64 << 20


class Sample(NamedTuple):
    """One reading of one link: a cumulative counter of `bits` bits, or a rate in bytes/s."""

    link: str
    counter: int | None = None
    bits: int = 64
    rate_bps: float | None = None


class Source(Protocol):
    """Something that knows traffic of links. `read` returns nothing for what it cannot read at present."""

    name: str

    def read(self) -> Iterable[Sample]: ...


class Verdict(NamedTuple):
    """What one source says of one link, and whether it is believed. `foreign_bps` is 0 unless it is."""

    source: str
    link: str
    at_s: float
    foreign_bps: float
    believed: bool
    why: str


class _Last(NamedTuple):
    at_s: float
    counter: int
    own_nbytes: int


class Estimator:
    """Turns samples into verdicts: pure but for the previous sample and the unit it remembers."""

    def __init__(self, own_nbytes: Callable[[str], int], capacity_bps: Callable[[str], float | None]) -> None:
        self._own, self._capacity = own_nbytes, capacity_bps
        self._last: dict[tuple[str, str], _Last] = {}
        self._units: dict[str, int] = {}
        self.verdicts: dict[str, Verdict] = {}

    def take(self, source: str, sample: Sample, now_s: float) -> Verdict | None:
        """Judge one sample; None for the first of a counter."""
        own = self._own(sample.link)
        previous = self._last.get((source, sample.link))
        self._last[source, sample.link] = _Last(now_s, sample.counter or 0, own)
        if previous is None or now_s <= previous.at_s:
            return None
        elapsed_s = now_s - previous.at_s
        own_bps = (own - previous.own_nbytes) / elapsed_s
        if sample.counter is None:
            verdict = self._judge(source, sample.link, now_s, sample.rate_bps or 0.0, own_bps)
        else:
            delta = (sample.counter - previous.counter) % (1 << sample.bits)
            unit = self._units.get(source) or self._calibrate(source, delta, own - previous.own_nbytes)
            if unit is None:
                verdict = Verdict(
                    source, sample.link, now_s, 0.0, False, "unit not known yet: no own traffic"
                )
            else:
                capacity = self._capacity(sample.link)
                if capacity is not None and elapsed_s * capacity > unit << sample.bits:
                    why = "the counter may have wrapped"
                    verdict = Verdict(source, sample.link, now_s, 0.0, False, why)
                    self.verdicts[sample.link] = verdict
                    return verdict
                verdict = self._judge(source, sample.link, now_s, delta * unit / elapsed_s, own_bps)
        self.verdicts[sample.link] = verdict
        return verdict

    def foreign_bps(self, link: str, now_s: float) -> float:
        """Believed traffic of others on `link`, bytes/s; 0 without a reading younger than `FRESH_S`."""
        verdict = self.verdicts.get(link)
        if verdict is None or not verdict.believed or now_s - verdict.at_s > FRESH_S:
            return 0.0
        return verdict.foreign_bps

    def _calibrate(self, source: str, delta: int, own_nbytes: int) -> int | None:
        """The unit that explains our own bytes, once there are enough of them."""
        if own_nbytes < CALIBRATE_NBYTES:
            return None
        for unit in UNITS:
            if LEAST * own_nbytes <= delta * unit <= OVERHEAD_MOST * own_nbytes:
                self._units[source] = unit
                return unit
        return None

    def _judge(self, source: str, link: str, now_s: float, total_bps: float, own_bps: float) -> Verdict:
        capacity = self._capacity(link)
        if total_bps != total_bps or total_bps < 0:
            return Verdict(source, link, now_s, 0.0, False, "not a number")
        if capacity is not None and total_bps > OVERHEAD_MOST * capacity:
            return Verdict(source, link, now_s, 0.0, False, "more than the link can carry")
        if total_bps < LEAST * own_bps:
            return Verdict(source, link, now_s, 0.0, False, "less than our own bytes")
        # Headers of our own bytes are ours: only what exceeds them is somebody else's.
        foreign = max(0.0, total_bps - OVERHEAD_MOST * own_bps) if own_bps else total_bps
        return Verdict(source, link, now_s, foreign, True, "")


class Sampler:
    """Reads all sources every `PERIOD_S` in a thread of its own; `stop` ends it within a period."""

    def __init__(self, sources: list[Source], estimator: Estimator, now: Callable[[], float]) -> None:
        self.sources, self.estimator, self._now = sources, estimator, now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="umsh-fabric-signals", daemon=True)

    def start(self) -> Sampler:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10 * PERIOD_S)

    def sample(self) -> list[Verdict]:
        """One round."""
        made = []
        for source in self.sources:
            for sample in source.read():
                verdict = self.estimator.take(source.name, sample, self._now())
                if verdict is not None:
                    made.append(verdict)
        return made

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.sample()
