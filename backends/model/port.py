"""One agent's way to memory: store buffer, private cache, fences, methods; faults planted here."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from umsh.backends.model.memory import LINE_NBYTES, Image, ModelMemory, lines_of

ORDERED = ("acquire", "acq_rel", "seq_cst")
BUFFER_MAX = 16
LOSS = 0.5  # how often a planted fault strikes where it can
WAKEUP_LOSS = 1 / 16
NEWEST_FIRST = 0.5  # how often a store that may overtake does


@dataclass(slots=True)
class Entry:
    """A store on its way. through: to memory, past the own cache. Without memory: a fence between stores."""

    memory: ModelMemory | None
    offset: int = 0
    data: bytes = b""
    release: bool = False
    through: bool = False

    def overlaps(self, memory: ModelMemory, offset: int, nbytes: int) -> bool:
        if self.memory is not memory:
            return False
        return self.offset < offset + nbytes and offset < self.offset + len(self.data)


class Port:
    """The CPU's stores drain in order (TSO); the GPU's in any order that releases and fences allow.

    The GPU hears of invalidations late: at its next acquire, or by chance.
    """

    other: Port

    def __init__(self, name: str, faults: frozenset[str], chance: random.Random) -> None:
        self.name = name
        self.faults = faults
        self.chance = chance
        self.weak = name == "gpu" or "reorder" in faults
        self.late = name == "gpu"
        self.buffer: list[Entry] = []
        self.unheard: list[tuple[Image, int]] = []
        self.used: dict[int, Image] = {}
        self._recent: tuple[Image, int] | None = None

    # ---- loads ----

    def load(self, memory: ModelMemory, offset: int, nbytes: int = 4, order: str = "plain") -> int:
        """A plain load may hit the private cache; an atomic one goes to memory."""
        found = self._forwarded(memory, offset, nbytes)
        if found is None:
            if order == "plain":
                source = self._cached(memory, offset)
            else:
                memory.images[self.name].write_back(offset // LINE_NBYTES)  # one's own stores come first
                source = memory.view
            found = bytes(source[offset : offset + nbytes])
        if order in ORDERED:
            self.hear()
        return int.from_bytes(found, "little")

    def read(self, memory: ModelMemory, offset: int, method: str) -> int:
        """One word by a read method."""
        if method == "RB":
            return self.load(memory, offset, 4, "relaxed")
        if method == "RI":
            self.invalidate(memory, offset, 4)
        return self.load(memory, offset)

    def warm(self, memory: ModelMemory, offset: int, nbytes: int) -> None:
        """Hold the lines of a range, whatever they say now."""
        self._use(memory).fetch_all(lines_of(offset, nbytes))

    def hear(self) -> None:
        """Take notice of every line that the other agent has overwritten."""
        for image, line in self.unheard:
            image.valid[line] = False
        self.unheard.clear()

    # ---- stores ----

    def store(self, memory: ModelMemory, offset: int, value: int, nbytes: int = 4, order: str = "plain",
              wakes: bool = False) -> None:  # fmt: skip
        """Into the store buffer. wakes: it is a set, which the fault lost_wakeup may lose."""
        lossy = wakes and order == "release" and "lost_wakeup" in self.faults
        if lossy and self.chance.random() < WAKEUP_LOSS:
            return
        while len(self.buffer) >= BUFFER_MAX:
            self.drain_one()
        release = order in ("release", "acq_rel", "seq_cst")
        self.buffer.append(Entry(memory, offset, value.to_bytes(nbytes, "little"), release, order != "plain"))
        if order == "seq_cst":
            self.fence(order)

    def store_pair(self, memory: ModelMemory, offset: int, part: int, nbytes: int, order: str) -> None:
        """One store of two equal halves of `nbytes` each; the fault torn makes it two."""
        if "torn" in self.faults:
            self.store(memory, offset, part, nbytes, order)
            self.store(memory, offset + nbytes, part, nbytes, order)
        else:
            self.store(memory, offset, part << 8 * nbytes | part, 2 * nbytes, order)

    def write(self, memory: ModelMemory, offset: int, value: int, method: str) -> None:
        """One word by a write method."""
        self.store(memory, offset, value, 4, "relaxed" if method == "WBp" else "plain")
        if method == "WF":
            self.write_back(memory, offset, 4)

    def fence(self, order: str) -> None:
        if order in ORDERED:
            self.hear()
        if "reorder" in self.faults:
            return
        if order == "seq_cst":
            self.drain()
        elif order in ("release", "acq_rel"):
            self.buffer.append(Entry(None))

    def modify(self, memory: ModelMemory, offset: int, change: Callable[[int], int]) -> int:
        """Read-modify-write in memory as one step; returns the old word."""
        self.fence("seq_cst")
        old = self.load(memory, offset, 4, "relaxed")
        self._arrive(Entry(memory, offset, change(old).to_bytes(4, "little"), through=True))
        return old

    # ---- cache maintenance and blocks ----

    def write_back(self, memory: ModelMemory, offset: int, nbytes: int) -> None:
        """WF: the lines of the range are in memory afterwards."""
        self.drain()
        lines = lines_of(offset, nbytes)
        skipped = self.chance.choice(lines) if "flush_skips_line" in self.faults and len(lines) > 1 else -1
        for line in lines:
            if line != skipped:
                memory.images[self.name].write_back(line)

    def invalidate(self, memory: ModelMemory, offset: int, nbytes: int) -> None:
        """RI: the next loads of the range come from memory."""
        self.drain()
        for line in lines_of(offset, nbytes):
            memory.images[self.name].drop(line)

    def write_block(self, memory: ModelMemory, offset: int, data: bytes, method: str) -> None:
        """A run of stores by a write method, as one event."""
        self.drain()
        self._arrive(Entry(memory, offset, data, through=method == "WBp"))
        if method == "WF":
            self.write_back(memory, offset, len(data))

    def read_block(self, memory: ModelMemory, offset: int, nbytes: int, method: str) -> bytes:
        """A run of loads by a read method, as one event."""
        self.drain()
        if method == "RB":
            return bytes(memory.view[offset : offset + nbytes])
        if method == "RI":
            self.invalidate(memory, offset, nbytes)
        image = self._use(memory)
        image.fetch_all(lines_of(offset, nbytes))
        return bytes(image.view[offset : offset + nbytes])

    def settle(self) -> None:
        """The driver's work between kernels: stores arrive, the GPU's caches are written back and emptied."""
        self.drain()
        self.hear()
        if self.name == "gpu":
            for image in self.used.values():
                image.clean()
            self.used.clear()

    # ---- what happens by itself ----

    def drain(self) -> None:
        """Let every store arrive; at most the entries of a full buffer."""
        for _ in range(len(self.buffer)):
            self.drain_one()

    def drain_one(self) -> None:
        """Let one store arrive, any that the rules let go."""
        ready = [at for at in range(len(self.buffer)) if self._may_go(at)]
        newest = self.chance.random() < NEWEST_FIRST
        entry = self.buffer.pop(0 if not self.weak else ready[-1] if newest else self.chance.choice(ready))
        if entry.memory is not None:
            self._arrive(entry)

    def disturb(self) -> None:
        """Chance at work: a store arrives, an invalidation is heard, a line is evicted."""
        draw = self.chance.random()
        if self.buffer and draw < 0.3:
            self.drain_one()
        if self.unheard and draw < 0.1:
            self.hear()
        if self._recent and draw > 0.98:
            image, line = self._recent
            image.drop(line)

    def _may_go(self, at: int) -> bool:
        entry, older = self.buffer[at], self.buffer[:at]
        held = "reorder" not in self.faults
        if entry.memory is None or (entry.release and held):
            return at == 0
        place = entry.memory, entry.offset, len(entry.data)
        return not any((one.memory is None and held) or one.overlaps(*place) for one in older)

    def _arrive(self, entry: Entry) -> None:
        memory, offset, data = entry.memory, entry.offset, entry.data
        assert memory is not None
        mine, end = self._use(memory), offset + len(data)
        if not (memory.coherent or entry.through):
            lines = lines_of(offset, len(data))
            mine.fetch_all(lines)
            mine.dirty[lines.start : lines.stop] = True
            mine.view[offset:end] = data
            return
        memory.view[offset:end] = data
        mine.view[offset:end] = data  # matters only where the line is valid
        if memory.coherent:
            for line in lines_of(offset, len(data)):
                self._tell(memory, line)

    def _tell(self, memory: ModelMemory, line: int) -> None:
        """The other agent's copy of the line is out of date."""
        image = memory.images[self.other.name]
        if not image.valid[line] or ("stale" in self.faults and self.chance.random() < LOSS):
            return
        if self.other.late:
            self.other.unheard.append((image, line))
        else:
            image.valid[line] = False

    def _forwarded(self, memory: ModelMemory, offset: int, nbytes: int) -> bytes | None:
        """The newest own store of exactly these bytes; partly overlapping ones arrive first."""
        for entry in reversed(self.buffer):
            if entry.overlaps(memory, offset, nbytes):
                if entry.offset == offset and len(entry.data) == nbytes:
                    return entry.data
                self.drain()
                return None
        return None

    def _cached(self, memory: ModelMemory, offset: int) -> memoryview:
        image, line = self._use(memory), offset // LINE_NBYTES
        image.fetch(line)
        self._recent = image, line
        return image.view

    def _use(self, memory: ModelMemory) -> Image:
        image = memory.images[self.name]
        self.used[id(image)] = image
        return image
