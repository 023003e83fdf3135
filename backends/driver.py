"""The contract of a driver: device, memory, stream, event and the two agents that do work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from umsh.errors import NeedError
from umsh.machine import Platform
from umsh.mechanism import Backing, MemoryKind

T = TypeVar("T")
Fact = str | int | float | bool


class Memory(ABC):
    """One allocation. It lives until free(); dropping it without free() frees it as well.

    address: CPU virtual address of the bytes the CPU reads and writes.
    device_address: the address kernels use; equal to `address` where both share one mapping.
    kernel_arg: what this driver's own kernel launch takes for a global pointer parameter.
    keep: any object that must outlive the memory (an adopted array's owner).
    """

    kind: MemoryKind
    address: int
    device_address: int
    kernel_arg: Any
    nbytes: int
    backing: Backing
    keep: object = None

    @abstractmethod
    def upload(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        """Make CPU bytes [offset, offset + nbytes) the device's. None where one memory serves both."""

    @abstractmethod
    def download(self, offset: int, nbytes: int, stream: Stream) -> Event | None:
        """Make device bytes the CPU's. None where one memory serves both."""

    @abstractmethod
    def free(self) -> None:
        """Give the memory back. The caller has made sure that no device work touches it. Idempotent."""

    def share(self) -> Mapping[str, Any]:
        """A picklable handle from which Device.attach maps the same bytes in another process.

        Raises UnsupportedError for memory that one process cannot lend to another.
        """
        from umsh.errors import UnsupportedError

        raise UnsupportedError(
            f"{self.kind.name!r} memory cannot be shared between processes.",
            "No handle was made.",
            "Bind the region with shared=True.",
        )


def check_range(memory: Memory, offset: int, nbytes: int, unit: int = 1, nbytes_min: int = 0) -> None:
    """Raise NeedError unless [offset, offset + nbytes) lies inside, both being multiples of `unit` bytes."""
    if offset < 0 or nbytes < nbytes_min or offset + nbytes > memory.nbytes or offset % unit or nbytes % unit:
        raise NeedError(
            f"Bytes {offset} to {offset + nbytes} of {memory.nbytes} were asked for, in units of {unit}.",
            "Nothing was done.",
            "Use an offset and a size inside the memory.",
        )


class Event(ABC):
    """A point in a stream's work."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the work before it has completed; never blocks."""

    @abstractmethod
    def wait(self, timeout_s: float) -> None:
        """Block, the GIL released, until done. WaitTimeout after timeout_s, DeviceError if it failed."""


class Stream(ABC):
    """An order of device work: a wrapper of the user's stream or queue, or the driver's own."""

    native: Any

    @abstractmethod
    def record(self) -> Event:
        """An event after all work enqueued so far."""

    @abstractmethod
    def wait_event(self, event: Event) -> None:
        """Let later work of this stream start after `event`; does not block the caller."""

    @abstractmethod
    def synchronize(self, timeout_s: float) -> None:
        """Block, the GIL released, until all work enqueued so far is done. WaitTimeout, DeviceError."""


class Pending(ABC, Generic[T]):
    """Work that an agent has started; result() is valid once."""

    @abstractmethod
    def result(self, timeout_s: float) -> T:
        """The work's result. WaitTimeout when it did not end in time; it ends by itself."""


@dataclass(frozen=True, slots=True)
class StepRun:
    """One run of an encoded litmus program (umsh/device/steps.h) on one agent.

    program: int32 array (steps, 4), C-contiguous. words: memory of the shared locations.
    registers: memory that receives uint32 [instances][registers] of this role.
    control: memory of the rendezvous words. role: 0 or 1. instances: how often it runs.
    settings: uint32 array of seeded stress settings, see steps.h.
    """

    program: Any
    words: Memory
    registers: Memory
    control: Memory
    role: int
    instances: int
    settings: Any


class Agent(ABC):
    """The CPU or the GPU of one device, doing the few things tests and benchmarks are made of.

    Every loop has a bound: work ends by itself even if its partner never comes. Patterns are of
    32-bit words: word i of seed s is umsh_pattern(s, i) in steps.h. `method` is a write or
    read method of mechanism.py; one that methods() reports absent raises UnsupportedError.
    """

    kind: str  # "cpu" or "gpu"
    pace: int = 1  # litmus delays: turns of arithmetic here that last as long as one of the partner

    @abstractmethod
    def methods(self) -> Mapping[str, str]:
        """Every write and read method -> "" when this agent has it, else the missing fact."""

    @abstractmethod
    def fill(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[None]:
        """Write the seeded pattern and publish it by `method`."""

    @abstractmethod
    def check(self, memory: Memory, offset: int, nbytes: int, seed: int, method: str) -> Pending[int]:
        """Read by `method` and count the words that differ from the seeded pattern."""

    @abstractmethod
    def gather(self, memory: Memory, count: int, seed: int, stride: int, method: str) -> Pending[int]:
        """Sum, mod 2**32, of `count` words at seeded-random multiples of `stride` bytes (native/work.c)."""

    @abstractmethod
    def steps(self, run: StepRun) -> Pending[int]:
        """Interpret one role of a litmus program; returns the instances completed."""

    @abstractmethod
    def echo(self, words: Memory, rounds: int, first: bool) -> Pending[int]:
        """Flag ping-pong over words[0] and words[32] (128 B apart); returns rounds completed."""

    @abstractmethod
    def lock_rounds(
        self, words: Memory, counter: Memory, rounds: int, algorithm: str, threads: int
    ) -> Pending[int]:
        """lock, counter += 1 (plain), unlock; `rounds` times on each of `threads`; returns rounds done."""

    @abstractmethod
    def poll(self, words: Memory, level: str, threads: int, rounds: int) -> Pending[int]:
        """`threads` pollers wait for words[0] to reach 1..rounds, throttled at `level`.

        The last one to see a round answers it in words[32], so the partner is the other agent's
        echo(first=True). words[64] belongs to the pollers. Returns rounds completed.
        """

    @abstractmethod
    def pollers_max(self, level: str) -> int:
        """How many pollers can run at once at `level` without deadlock; 0 when the level is absent."""


class Device(ABC):
    """One opened device of one driver."""

    driver: str
    index: int
    name: str
    provenance: str = "measured"  # "modelled" for backends/model
    dlpack_device: tuple[int, int] = (1, 0)  # (DLDeviceType, id) that the GPU-side view speaks
    cpu: Agent
    gpu: Agent

    @abstractmethod
    def facts(self) -> Mapping[str, Fact]:
        """What was asked of the driver and device: versions, capabilities, limits."""

    @abstractmethod
    def memory_kinds(self) -> tuple[MemoryKind, ...]:
        """Every kind this driver knows, absent ones with their missing fact."""

    @abstractmethod
    def allocate(self, kind: str, nbytes: int, pages: str, shared: bool = False) -> Memory:
        """New memory, zeroed. OutOfMemory, UnsupportedError (names the missing fact), DeviceError."""

    @abstractmethod
    def adopt(self, kind: str, address: int, nbytes: int, keep: object) -> Memory:
        """Memory the caller owns. AdoptError with the reason when it does not qualify."""

    @abstractmethod
    def attach(self, handle: Mapping[str, Any]) -> Memory:
        """Map what Memory.share() of another process described. DeviceError when it is gone."""

    @abstractmethod
    def stream(self, native: object | None = None) -> Stream:
        """Wrap the user's stream or queue; None gives the device's own."""

    @abstractmethod
    def memory_info(self) -> tuple[int, int, str]:
        """(usable bytes, total bytes, source of the figure) for new regions on this device."""

    @abstractmethod
    def clock_ns(self) -> int:
        """The clock benchmarks use: monotonic on real devices, virtual on modelled ones."""

    def platform(self) -> tuple[Platform, str] | None:
        """What a modelled device is a model of, and the evidence; None: recognise it by its facts."""
        return None

    def lock_algorithms(self) -> Mapping[str, str]:
        """Lock algorithm -> "" when both agents have it, else the missing fact."""
        return {}


Opener = Callable[[int], Device]
