"""What the paper says of each platform, as rows that a modelled machine agrees with or not.

The paper: "Characterizing CPU-GPU Memory Sharing over Unified Memory Architecture", EuroSys '27.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from umsh.backends.model import cost
from umsh.backends.model.description import Machine
from umsh.probe.modelled import fastest, verdict

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
Gives = Callable[[Machine], tuple[str, bool]]


@dataclass(frozen=True)
class Row:
    """One statement. mark: "input" (given to the model), "fitted" (a figure was set to it), "predicted".

    gives: what the model says, and whether that agrees.
    """

    section: str
    platform: str
    says: str
    mark: str
    gives: Gives


def shares(sharing: str, direction: str, boundary: str, expected: str) -> Gives:
    """The litmus verdict of a sharing."""

    def gives(machine: Machine) -> tuple[str, bool]:
        found = verdict(machine.platform, sharing, direction, boundary)
        return f"{sharing} {direction} {boundary}: {found}", found == expected

    return gives


def none_kept(direction: str, boundary: str) -> Gives:
    """No sharing of the machine is kept."""

    def gives(machine: Machine) -> tuple[str, bool]:
        kept = [
            f"{kind.name}:{write}/{read}"
            for kind in machine.kinds
            for write in ("WA", "WF", "WBp")
            for read in ("RA", "RI", "RB")
            if verdict(machine.platform, f"{kind.name}:{write}/{read}", direction, boundary) == "kept"
        ]
        return f"kept {direction} {boundary}: {', '.join(kept) or 'none'}", not kept

    return gives


def ratio(what: str, over: Callable[[Machine], float], low: float, high: float) -> Gives:
    """A ratio of times within bounds."""

    def gives(machine: Machine) -> tuple[str, bool]:
        value = over(machine)
        return f"{what} {value:.3g}", low <= value <= high

    return gives


def writes(agent: str, one: str, other: str, nbytes: int, method: str = "WA") -> Callable[[Machine], float]:
    """Write time of kind `one` over that of kind `other`."""
    return lambda m: (
        cost.write_ns(m, agent, m.kind(one), "thp", nbytes, method)
        / cost.write_ns(m, agent, m.kind(other), "thp", nbytes, "WA")
    )


def reads(one: str, other: str, nbytes: int) -> Callable[[Machine], float]:
    """GPU read time of kind `one` over that of kind `other`."""
    return lambda m: (
        cost.read_ns(m, "gpu", m.kind(one), "thp", nbytes, "RA")
        / cost.read_ns(m, "gpu", m.kind(other), "thp", nbytes, "RA")
    )


def binds(one: str, other: str, nbytes: int) -> Callable[[Machine], float]:
    return lambda m: cost.bind_ns(m, one, nbytes) / cost.bind_ns(m, other, nbytes)


def crossover(m: Machine) -> float:
    """KiB from which 2 MiB pages bind faster than 4 KiB pages."""
    return next(
        n for n in range(4, 2048, 4) if cost.bind_ns(m, "hugetlb", n * KIB) <= cost.bind_ns(m, "4k", n * KIB)
    )


def block_limit(m: Machine) -> float:
    """GPU threads up to which block-level waiting beats grid-level waiting."""
    return (
        next(n for n in range(256, 65536, 256) if cost.round_ns(m, "grid", n) < cost.round_ns(m, "block", n))
        - 256
    )


def levels(one: str, other: str, threads: int) -> Callable[[Machine], float]:
    return lambda m: cost.round_ns(m, one, threads) / cost.round_ns(m, other, threads)


def slower_from(m: Machine) -> float:
    """MiB from which two-way coherence costs 5 % of a GPU write on cached memory."""
    return next(n for n in range(1, 1024) if writes("gpu", "system", "system-one-way", n * MIB)(m) >= 1.05)


def uncached_write(m: Machine) -> float:
    """CPU time of writing uncached words over cached ones."""
    return m["cpu.uncached_latency"] / cost.WORD_NBYTES * m["cpu.write_bandwidth"]


def bypass_no_faster(m: Machine) -> tuple[str, bool]:
    kind, nbytes = m.kinds[0], 16 * MIB
    times = {
        w: cost.write_ns(m, "cpu", kind, "thp", nbytes, w) for w in m.methods["cpu"].has if w.startswith("W")
    }
    best = min(times, key=times.__getitem__)
    return f"fastest CPU write {best}", best == "WA"


def picks(
    direction: str, boundary: str, nbytes: int, right: Callable[[Machine, str, str, str], bool]
) -> Gives:
    """The fastest kept sharing, by kind, write and read method."""

    def gives(machine: Machine) -> tuple[str, bool]:
        name = fastest(machine, direction, boundary, nbytes)
        if not name:
            return f"{direction} {boundary}: none", False
        kind, _, how = name.partition(":")
        write, _, read = how.partition("/")
        return f"{direction} {boundary} {nbytes // KIB} KiB: {name}", right(machine, kind, write, read)

    return gives


def _coherence(word: str, read_method: str) -> Callable[[Machine, str, str, str], bool]:
    return lambda m, kind, write, read: m.kind(kind).coherence == word and read == read_method


def _policies(cpu: str, gpu: str) -> Callable[[Machine, str, str, str], bool]:
    return lambda m, kind, write, read: (
        (m.kind(kind).cpu, m.kind(kind).gpu, write, read) == (cpu, gpu, "WA", "RA")
    )


BOTH = ("cpu->gpu", "gpu->cpu")
FIVE = ("raptor", "arrow", "lunar", "orin", "spark")
ROWS: tuple[Row, ...] = (
    *(Row("4.1.2", p, "CPU write-alone is right on WB when the receiver has coherence", "predicted",
          shares(f"{k}:WA/RA", "cpu->gpu", "kernel", "kept"))
      for p, k in (("raptor", "usm-host"), ("arrow", "usm-host"), ("lunar", "usm-host"), ("orin", "managed"),
                   ("spark", "system"))),
    Row("4.1.2", "arrow", "CPU write-alone is wrong when the receiver's coherence is off", "predicted",
        shares("buffer:WA/RI", "cpu->gpu", "inside", "broken")),
    Row("4.1.2", "arrow", "CPU write-then-flush is right without coherence", "predicted",
        shares("buffer:WF/RI", "cpu->gpu", "inside", "kept")),
    *(Row("4.1.3", p, "GPU read-alone is wrong on WB without sender-side coherence", "predicted",
          shares("usm-host:WA/RA", "cpu->gpu", "inside", "broken")) for p in ("raptor", "arrow", "lunar")),
    *(Row("4.1.3", p, "GPU read-bypass is an alternative on cached memory", "predicted",
          shares("usm-host:WA/RB", "cpu->gpu", "inside", "kept")) for p in ("raptor", "arrow", "lunar")),
    *(Row("4.1.2", "orin", "write-alone and read-alone are right on uncached memory", "predicted",
          shares("uncached:WA/RA", way, "inside", "kept")) for way in BOTH),
    *(Row("4.1.2", p, "GPU cache-bypass writes are supported", "input",
          lambda m: (f"GPU writes {', '.join(m.methods['gpu'].has)}", "WBp" in m.methods["gpu"].has))
      for p in ("arrow", "lunar")),
    *(Row("4.1.2", p, "GPU cache-bypass writes are not supported", "input",
          lambda m: (f"GPU writes {', '.join(m.methods['gpu'].has)}", "WBp" not in m.methods["gpu"].has))
      for p in ("raptor", "orin")),
    *(Row("4.1.2", p, "GPU write-alone is wrong on WB: the CPU has no coherence", "predicted",
          shares("usm-host:WA/RA", "gpu->cpu", "inside", "broken")) for p in ("raptor", "arrow", "lunar")),
    *(Row("4.2.3", p, "GPU bypass writes and CPU read-alone are right with coherence on", "predicted",
          shares("usm-host:WBp/RA", "gpu->cpu", "inside", "kept")) for p in ("arrow", "lunar")),
    Row("4.2.3", "arrow", "with coherence off the CPU must invalidate: read-alone is wrong", "predicted",
        shares("buffer:WBp/RA", "gpu->cpu", "inside", "broken")),
    Row("4.2.3", "arrow", "with coherence off read-after-invalidate is right", "predicted",
        shares("buffer:WBp/RI", "gpu->cpu", "inside", "kept")),
    Row("4.2.3", "raptor", "no communication from GPU to CPU inside a kernel", "predicted",
        none_kept("gpu->cpu", "inside")),
    Row("4.2.3", "raptor", "GPU to CPU works between kernels", "predicted",
        shares("usm-host:WA/RA", "gpu->cpu", "kernel", "kept")),
    Row("4.2.3", "orin", "GPU write-alone on UC with CPU read-alone on WB is right", "predicted",
        shares("pinned:WA/RA", "gpu->cpu", "inside", "kept")),
    Row("4.1.2", "orin", "GPU write-alone on cached memory is wrong inside a kernel", "predicted",
        shares("managed:WA/RA", "gpu->cpu", "inside", "broken")),
    *(Row("5.2", "spark", "two-way coherence: write-alone and read-alone on WB are right", "predicted",
          shares("system:WA/RA", way, "inside", "kept")) for way in BOTH),
    *(Row("1, 4.2.1", p, "4 KB pages make large binds nearly 100 times slower than 2 MB pages", "fitted",
          ratio("1 GiB, times", binds("4k", "thp", GIB), 70, 130)) for p in FIVE),
    *(Row("1, 4.2.1", p, "2 MB pages are up to 5 times slower for small regions", "fitted",
          ratio("4 KiB, times", binds("hugetlb", "4k", 4 * KIB), 3.5, 5.5)) for p in ("lunar", "orin")),
    *(Row("4.2.1", p, "the crossover is near 32 KB", "predicted", ratio("KiB", crossover, 16, 64))
      for p in ("lunar", "orin")),
    *(Row("4.2.1", p, "THP binds as fast as the better of both, small and large", "predicted",
          ratio("worst over 4 KiB and 1 GiB, times",
                lambda m: max(binds("thp", "4k", 4 * KIB)(m), binds("thp", "hugetlb", GIB)(m)), 0, 1.05))
      for p in FIVE),
    *(Row("4.2.2", p, "uncached memory raises CPU write time by up to 300 times", mark,
          ratio("times", uncached_write, 100, 330))
      for p, mark in (("raptor", "predicted"), ("arrow", "predicted"), ("lunar", "fitted"), 
                      ("orin", "fitted"), ("spark", "fitted"))),
    *(Row("4.2.2", p, "WA on WB has the lowest CPU write time", "predicted", bypass_no_faster)
      for p in ("raptor", "arrow", "lunar", "orin")),
    Row("4.2.3", "arrow", "GPU write time with coherence is 2.07 times that without", "predicted",
        ratio("times", writes("gpu", "usm-host", "buffer", 16 * MIB), 1.86, 2.28)),
    Row("4.2.3", "lunar", "the memory-side cache takes the coherence traffic", "predicted",
        ratio("times", writes("gpu", "usm-host", "buffer", 16 * MIB), 0.95, 1.05)),
    *(Row("3", p, "uncached GPU memory costs nothing with a memory-side cache", "input",
          ratio("times", writes("gpu", one, other, 16 * MIB), 0.95, 1.05))
      for p, one, other in (("lunar", "uncached", "usm-host"), ("orin", "pinned", "managed"))),
    Row("4.2.3", "orin", "the CPU's flush beats its invalidation", "fitted",
        ratio("invalidate over flush", lambda m: m["cpu.invalidate_line"] / m["cpu.flush_line"], 2, 100)),
    Row("5.2, B.1", "spark", "GPU writes on coherent WB lose up to 27 % against UC", "fitted",
        ratio("lost share at 1 GiB", lambda m: 1 - 1 / writes("gpu", "system", "system-uc", GIB)(m), 0.22,
              0.27)),
    Row("5.2, B.1", "spark", "GPU reads on coherent WB lose about 8 %", "fitted",
        ratio("lost share", lambda m: 1 - 1 / reads("system", "system-uc", 256 * MIB)(m), 0.06, 0.10)),
    Row("B.1", "spark", "under WB two-way coherence is slower than one-way above 32 MB", "predicted",
        ratio("5 % slower from MiB", slower_from, 22, 40)),
    *(Row("4.2.4", p, "block-level barriers hold to about 1,000 threads, then grid-level ones win", "fitted",
          ratio("threads", block_limit, 700, 1400)) for p in ("raptor", "arrow", "lunar", "orin")),
    *(Row("4.2.4", p, "a one-thread kernel is worse than grid-level barriers", "predicted",
          ratio("kernel over grid at 16 Ki threads", levels("kernel", "grid", 16384), 1.05, 1e3))
      for p in ("raptor", "arrow", "lunar", "orin")),
    Row("5.2, B.1", "spark", "kernel-level waiting is preferred at high contention", "predicted",
        ratio("kernel over grid at 16 Ki threads", levels("kernel", "grid", 16384), 0, 0.95)),
    Row("4.2.3", "arrow", "choice: coherence off, CPU read-after-invalidate", "fitted",
        picks("gpu->cpu", "inside", 16 * MIB, _coherence("none", "RI"))),
    Row("4.2.3", "lunar", "choice: coherence on, CPU read-alone", "predicted",
        picks("gpu->cpu", "inside", 16 * MIB, _coherence("one-way", "RA"))),
    Row("4.2.3", "orin", "choice: GPU write-alone on UC, CPU read-alone on WB", "predicted",
        picks("gpu->cpu", "inside", 16 * MIB, _policies("WB", "UC"))),
    Row("5.2", "spark", "choice: UC for large streaming GPU writes", "predicted",
        picks("gpu->cpu", "kernel", 256 * MIB, _policies("WB", "UC"))),
    Row("5.2", "spark", "choice: coherent WB for GPU reads although it loses 8 %", "predicted",
        picks("cpu->gpu", "kernel", 256 * MIB, _policies("WB", "WB"))),
    Row("B.1", "spark", "choice: coherent WB for small GPU-generated data", "predicted",
        picks("gpu->cpu", "inside", 4 * KIB, _policies("WB", "WB"))),
    *(Row("4.2.2", p, "choice: WB and write-alone on the CPU's side", "predicted",
          picks("cpu->gpu", "kernel", 64 * KIB, lambda m, kind, w, r: (m.kind(kind).cpu, w) == ("WB", "WA")))
      for p in ("raptor", "arrow", "lunar", "orin")),
)  # fmt: skip
NOT_MODELLED = (
    ("1", "orin", "L2-optimised GEMM loses 16 % on uncached memory: no compute is modelled"),
    ("4.2.2", "arrow", "DMA into WB memory against mmap and copy, 70 % on average: no storage is modelled"),
    ("6", "all", "the nine applications: no application is modelled"),
    ("6.2.2, B.2", "orin, spark", "CAS locks against delegation: the model has no delegated lock"),
)
