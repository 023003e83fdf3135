"""What a litmus test is run on: the sharing of a mechanism, a memory kind, or a lock on one."""

from __future__ import annotations

from dataclasses import dataclass

from umsh.backends.driver import Agent, Device
from umsh.correctness.language import SUBJECT, Litmus, Role
from umsh.mechanism import READ_METHODS, WRITE_METHODS, MemoryKind
from umsh.need import DIRECTIONS

BY_METHOD = {"write": "write", "fill": "write", "read": "read", "check": "read", "poll": "read"}
ONE_WAY = DIRECTIONS[:2]  # role 0 on the CPU, role 0 on the GPU


@dataclass(frozen=True, slots=True)
class Subject:
    """memory: a memory kind. write, read: methods ("" where the test is not about data). lock: an algorithm.
    atomic: about read-modify-write, which a link may lack where loads and stores of the memory hold.

    absent: the missing fact when this device cannot do it in this direction, else "".
    """

    memory: str
    write: str = ""
    read: str = ""
    lock: str = ""
    atomic: bool = False
    absent: str = ""

    @property
    def name(self) -> str:
        if self.lock:
            return f"lock:{self.lock}@{self.memory}"
        if self.atomic:
            return f"atomic:{self.memory}"
        return f"{self.memory}:{self.write}/{self.read}" if self.write else self.memory


def agents(device: Device, direction: str) -> tuple[Agent, Agent]:
    """The agents of the even and of the odd roles."""
    return (device.cpu, device.gpu) if direction == "cpu->gpu" else (device.gpu, device.cpu)


def subjects(device: Device, test: Litmus, direction: str) -> tuple[Subject, ...]:
    """Every subject of this test on this device, absent ones with the missing fact."""
    kinds = device.memory_kinds()
    if test.about in ("control", "atomic"):
        atomic = test.about == "atomic"
        return tuple(Subject(kind.name, atomic=atomic, absent=_word_fact(kind)) for kind in kinds)
    if test.about == "lock":
        return tuple(
            Subject(kind.name, lock=name, absent=_word_fact(kind) or missing)
            for kind in kinds
            for name, missing in device.lock_algorithms().items()
        )
    return tuple(
        Subject(kind.name, write, read, absent=_data_fact(device, test, direction, kind, write, read))
        for kind in kinds
        for write in WRITE_METHODS
        for read in READ_METHODS
        if (write == "copy") == (read == "copy") == (kind.name == "copy")
    )


def subject_of(device: Device, test: Litmus, direction: str, name: str) -> Subject:
    """The subject of that name; absent with the reason when the device knows none."""
    for subject in subjects(device, test, direction):
        if subject.name == name:
            return subject
    return Subject(name, absent=f"{device.driver} has no {name!r} for {test.name}")


def _word_fact(kind: MemoryKind) -> str:
    if kind.absent:
        return kind.absent
    return "two memories share no word" if kind.name == "copy" else ""


def _data_fact(device: Device, test: Litmus, direction: str, kind: MemoryKind, write: str, read: str) -> str:
    if kind.absent:
        return kind.absent
    if write == "copy" and test.boundary == "inside":
        return "a copy has no meaning while a kernel runs"
    for number, role in enumerate(test.roles):
        missing = _method_fact(agents(device, direction)[number % 2], role, write, read)
        if missing:
            return missing
    return ""


def _method_fact(agent: Agent, role: Role, write: str, read: str) -> str:
    """What `agent` lacks of the methods that a role uses."""
    used = {BY_METHOD[step.op] for step in role if step.how == SUBJECT and step.op in BY_METHOD}
    for need, method in (("write", write), ("read", read)):
        missing = agent.methods().get(method, "not known to this driver") if need in used else ""
        if missing and method != "copy":
            return f"{agent.kind} {method}: {missing}"
    return ""
