"""Mechanism: how a need is met, memory kind x page kind x write method x read method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from umsh.errors import NeedError

Agent = Literal["cpu", "gpu"]
WriteMethod = Literal["WA", "WF", "WBp", "copy"]
ReadMethod = Literal["RA", "RI", "RB", "copy"]
Pages = Literal["4k", "thp", "hugetlb", "driver"]
Coherence = Literal["none", "one-way", "two-way"]
LockAlgorithm = Literal["cas", "ticket", "peterson", "delegated"]
ThrottleLevel = Literal["thread", "block", "grid", "kernel"]

WRITE_METHODS: tuple[str, ...] = get_args(WriteMethod)
READ_METHODS: tuple[str, ...] = get_args(ReadMethod)
PAGES: tuple[str, ...] = get_args(Pages)
LOCK_ALGORITHMS: tuple[str, ...] = get_args(LockAlgorithm)
THROTTLE_LEVELS: tuple[str, ...] = get_args(ThrottleLevel)


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """One kind of memory a driver can give, and what is known of it before any test.

    name: "svm", "system", "usm-host", "pinned", "copy" and so on; unique within a driver.
    pages: page kinds it can be bound with; ("driver",) where the driver decides.
    cpu_policy / gpu_policy: cache policy of each agent's mapping ("WB", "WC", "UC", "?").
    coherence: what the hardware keeps coherent ("none", "one-way", "two-way").
    documented: the vendor guarantees coherence at kernel boundaries; only such memory may be a
        default before a probe has run.
    inside: the vendor guarantees visibility and atomics while a kernel runs.
    absent: the missing fact when this device cannot give it, else "".
    note: what a reader of `umsh-probe facts` should know, e.g. "works, not advertised".
    """

    name: str
    pages: tuple[str, ...]
    cpu_policy: str
    gpu_policy: str
    coherence: str
    documented: bool
    inside: bool
    absent: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Mechanism:
    """A way to meet a need, written "memory.pages:write/read", e.g. "system.thp:WA/RA".

    Methods are the paper's (section 4.1): write-alone WA, write-then-flush WF, write-bypass WBp;
    read-alone RA, read-after-invalidate RI, read-bypass RB; copy is two regions and a copy.
    In direction "both" the pair applies to whichever agent writes and whichever reads.
    """

    memory: str
    pages: str
    write: str
    read: str

    @property
    def name(self) -> str:
        return f"{self.memory}.{self.pages}:{self.write}/{self.read}"

    @property
    def sharing(self) -> str:
        """The name without the page kind: page size decides speed, never correctness (paper 4.1.1)."""
        return f"{self.memory}:{self.write}/{self.read}"

    @classmethod
    def parse(cls, name: str) -> Mechanism:
        """The mechanism a name stands for; NeedError when it is not of the form above."""
        where, colon, how = str(name).partition(":")
        memory, dot, pages = where.rpartition(".")
        write, slash, read = how.partition("/")
        known = pages in PAGES and write in WRITE_METHODS and read in READ_METHODS
        if not (colon and dot and slash and memory and known):
            raise NeedError(
                f"mechanism={name!r} is not of the form 'memory.pages:write/read'.",
                "Nothing was bound.",
                "Use mechanism='auto', or a name that `umsh-probe facts` lists, such as 'system.thp:WA/RA'.",
            )
        return cls(memory, pages, write, read)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Backing:
    """What the pages of a mapping really are, read back from the kernel.

    requested: the page kind asked for. huge_bytes / total_bytes: how much of it the kernel backs
    with pages larger than the base page. page_bytes: the large page size, or the base page's where
    no large one fits. source: how it was verified ("pagemap_scan", "smaps", or "driver" where the mapping is not ours).
    """

    requested: str
    huge_bytes: int
    total_bytes: int
    page_bytes: int
    source: str
