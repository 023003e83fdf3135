"""Time on a modelled machine, in ns of virtual time: pure functions of its description."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umsh.backends.model.description import Machine, MemoryText
from umsh.native import lib

KIB, MIB = 1 << 10, 1 << 20
WORD_NBYTES, PAGE_NBYTES, LARGE_PAGE_NBYTES = 8, 4 * KIB, 2 * MIB
CALL_NS = 200.0  # starting work on the CPU
TURN_NS, PAUSE_NS, IDLE_NS = (
    4.0,
    80.0,
    20_000.0,
)  # of litmus programs: they set the interleaving, no figure rests on them
CPU, GPU = 0, 1
LINE_NBYTES = 64
Floats = NDArray[np.float64]


def events(machine: Machine) -> Floats:
    """float64 [agent][event]: what one access costs, for the interpreter."""
    side = machine["memory.side_cache_latency"]
    cpu_far = side or machine["cpu.dram_latency"]
    table = np.zeros((2, lib.UMSH_MODEL_COSTS))
    cpu, gpu = table[CPU], table[GPU]
    cpu[lib.UMSH_MODEL_HIT], gpu[lib.UMSH_MODEL_HIT] = machine["cpu.l1_latency"], machine["gpu.l1_latency"]
    cpu[lib.UMSH_MODEL_MISS], gpu[lib.UMSH_MODEL_MISS] = cpu_far, machine["gpu.dram_latency"]
    cpu[lib.UMSH_MODEL_SNOOP] = gpu[lib.UMSH_MODEL_SNOOP] = machine["gpu.snoop_latency"]
    cpu[lib.UMSH_MODEL_UNCACHED], gpu[lib.UMSH_MODEL_UNCACHED] = (
        machine["cpu.uncached_latency"],
        machine["gpu.dram_latency"],
    )
    cpu[lib.UMSH_MODEL_STORE], gpu[lib.UMSH_MODEL_STORE] = (
        machine["cpu.l1_latency"],
        machine["gpu.l1_latency"],
    )
    cpu[lib.UMSH_MODEL_FENCE], gpu[lib.UMSH_MODEL_FENCE] = (
        machine["cpu.l3_latency"],
        machine["gpu.l2_latency"],
    )
    cpu[lib.UMSH_MODEL_MODIFY], gpu[lib.UMSH_MODEL_MODIFY] = (
        machine["cpu.atomic_latency"],
        machine["gpu.snoop_latency"],
    )
    cpu[lib.UMSH_MODEL_FLUSH], gpu[lib.UMSH_MODEL_FLUSH] = (
        machine["cpu.flush_line"],
        machine["gpu.l2_latency"],
    )
    cpu[lib.UMSH_MODEL_POLL], gpu[lib.UMSH_MODEL_POLL] = (
        machine["cpu.l3_latency"],
        machine["gpu.dram_latency"],
    )
    cpu[lib.UMSH_MODEL_BYTE], gpu[lib.UMSH_MODEL_BYTE] = (
        1 / machine["cpu.write_bandwidth"],
        1 / machine["gpu.write_bandwidth"],
    )
    table[:, lib.UMSH_MODEL_TURN], table[:, lib.UMSH_MODEL_PAUSE], table[:, lib.UMSH_MODEL_IDLE] = (
        TURN_NS,
        PAUSE_NS,
        IDLE_NS,
    )
    return table


def start_ns(machine: Machine, agent: str) -> float:
    """Until work that was given to an agent begins."""
    return machine["gpu.launch_latency"] * 1e3 if agent == "gpu" else CALL_NS


def write_ns(machine: Machine, agent: str, kind: MemoryText, pages: str, nbytes: int, method: str) -> float:
    """Producing `nbytes` in place and publishing them by a write method."""
    walk = _walk_ns(machine, agent, pages, nbytes)
    if agent == "gpu":
        return _gpu_write_ns(machine, kind, nbytes, method) + walk
    if method == "WBp" or kind.cpu == "WC":
        return nbytes / machine["cpu.bypass_bandwidth"] + walk
    if kind.cpu == "UC":
        return nbytes / WORD_NBYTES * machine["cpu.uncached_latency"] + walk
    flushed = lines(nbytes) * machine["cpu.flush_line"] if method == "WF" else 0.0
    return nbytes / machine["cpu.write_bandwidth"] + flushed + walk


def read_ns(machine: Machine, agent: str, kind: MemoryText, pages: str, nbytes: int, method: str) -> float:
    """Consuming `nbytes` by a read method."""
    walk = _walk_ns(machine, agent, pages, nbytes)
    if agent == "gpu":
        kept = 1 - machine["gpu.coherent_read_loss"] / 100 if _owned(kind) else 1.0
        fixed = 2 * machine["gpu.dram_latency"] if method == "RI" else 0.0
        return nbytes / machine["gpu.read_bandwidth"] / kept + fixed + walk
    if kind.cpu != "WB":
        return nbytes / WORD_NBYTES * machine["cpu.uncached_latency"] + walk
    dropped = lines(nbytes) * machine["cpu.flush_line"] if method == "RI" else 0.0
    return nbytes / machine["cpu.read_bandwidth"] + dropped + walk


def bind_ns(machine: Machine, pages: str, nbytes: int) -> float:
    """Mapping for both agents and prefaulting; thp takes large pages where the region fills one."""
    large = nbytes // LARGE_PAGE_NBYTES if pages == "thp" else 0
    if pages == "hugetlb":
        large = -(-nbytes // LARGE_PAGE_NBYTES)
    small = -(-max(0, nbytes - large * LARGE_PAGE_NBYTES) // PAGE_NBYTES)
    spent = machine["bind.fixed"] + large * machine["bind.page_2m"] + small * machine["bind.page_4k"]
    return spent * 1e3


def gather_ns(machine: Machine, agent: str, kind: MemoryText, pages: str, nbytes: int, method: str) -> float:
    """One read of a random word of a region of `nbytes`."""
    policy = kind.cpu if agent == "cpu" else kind.gpu
    far = machine[f"{agent}.dram_latency"]
    if nbytes <= machine["memory.side_cache_size"] * MIB:
        far = machine["memory.side_cache_latency"] if agent == "cpu" else far
    if policy == "WB" and method == "RA" and nbytes <= machine[f"{agent}.cache_size"] * MIB:
        far = machine["cpu.l3_latency"] if agent == "cpu" else machine["gpu.l2_latency"]
    if agent == "cpu" and policy != "WB":
        far = machine["cpu.uncached_latency"]
    missed = pages == "4k" and nbytes > machine[f"{agent}.tlb_reach_4k"] * MIB
    dropped = machine["cpu.flush_line"] if method == "RI" and agent == "cpu" else 0.0
    return far + dropped + (machine[f"{agent}.tlb_miss_latency"] if missed else 0.0)


def pollers(machine: Machine, level: str, threads: int) -> int:
    """How many of `threads` waiting GPU threads poll the flag themselves, by throttle level."""
    if level == "thread":
        return threads
    return -(-threads // int(machine["gpu.block_threads"])) if level == "block" else 1


def round_ns(machine: Machine, level: str, threads: int) -> float:
    """What a round of waiting adds to a flag's round trip: polls queue up; then the others are told."""
    told = {
        "thread": 0.0, "block": machine["gpu.block_barrier"], "grid": machine["gpu.grid_barrier"],
        "kernel": machine["gpu.launch_latency"] * 1e3,
    }[level]  # fmt: skip
    return pollers(machine, level, threads) * machine["gpu.poll_service"] + told


def lines(nbytes: int) -> int:
    return -(-nbytes // LINE_NBYTES)


def _owned(kind: MemoryText) -> bool:
    """Whether the GPU's lines are registered with the CPU's coherence (two-way, and cached by the GPU)."""
    return kind.coherence == "two-way" and kind.gpu == "WB"


def _gpu_write_ns(machine: Machine, kind: MemoryText, nbytes: int, method: str) -> float:
    """Coherent writes move more over DRAM without a memory-side cache; owned lines cost on eviction."""
    snooped = kind.coherence != "none" and machine["memory.side_cache_size"] == 0
    traffic = machine["gpu.coherent_write_traffic"] if snooped else 1.0
    bandwidth = machine["gpu.write_bandwidth"]
    spent = nbytes * traffic / bandwidth
    if _owned(kind):
        evicted = max(0.0, nbytes - machine["gpu.cache_size"] * MIB)
        spent += evicted / bandwidth * (1 / (1 - machine["gpu.coherent_write_loss"] / 100) - 1)
    return spent + (2 * machine["gpu.dram_latency"] if method == "WF" else 0.0)


def _walk_ns(machine: Machine, agent: str, pages: str, nbytes: int) -> float:
    """Page walks of a stream over 4 KiB pages beyond what the TLB reaches."""
    if pages in ("thp", "hugetlb", "driver") or nbytes <= machine[f"{agent}.tlb_reach_4k"] * MIB:
        return 0.0
    return nbytes / PAGE_NBYTES * machine[f"{agent}.tlb_miss_latency"]
