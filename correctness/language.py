"""The litmus language: steps, roles, outcomes and mutants, all of it data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SUBJECT = "subject"  # the method or lock algorithm of the mechanism under test
BOUNDARIES = ("inside", "kernel")
ABOUT = ("data", "control", "atomic", "lock")
LOCK_NBYTES, LINE_NBYTES = 512, 128


@dataclass(frozen=True, slots=True)
class Step:
    """One access of one role.

    op: the name of an UMSH_STEP_ opcode, lower case. location: a name, "" for none.
    how: a memory order, a write or read method, or a lock algorithm; SUBJECT leaves it to the subject.
    width: "32", "64" or "16_pair"; the wide ones fill two registers, low half first.
    registers: the names of what the step observes. value: as the opcode has it (umsh/device/steps.h).
    """

    op: str
    location: str = ""
    how: str = "plain"
    width: str = "32"
    registers: tuple[str, ...] = ()
    value: int = 0


Role = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Mutant:
    """The same test with its protection weakened; a harness that cannot see it proves nothing.

    observable: "always", on any hardware of more than one core, or "near", only where both agents share
    caches rather than a link, or "weak", only where the
    protection matters. unordered: the phases of a kernel-boundary test are not awaited.
    """

    roles: Sequence[Role]
    observable: str = "always"
    unordered: bool = False


@dataclass(frozen=True, slots=True)
class Litmus:
    """One litmus test, for two agents in either assignment.

    clause: what of docs/contract.md it tests. boundary: "inside" runs both roles at once and has
    two of them; "kernel" runs roles one after another on alternating agents. about: "data"
    (subject: a Mechanism.sharing), "control" (a memory kind) or "lock" (algorithm and kind).
    forbidden, ordinary: outcomes, written "register=value ..."; one that names fewer registers
    stands for all that agree. An ordinary outcome is one the run must see to prove anything.
    blocks: location -> bytes, where larger than a word. initial: locations (not by method) that
    role 0 sets before both roles begin. name and digest come from the file (litmus/__init__.py).
    """

    clause: str
    boundary: str
    about: str
    roles: Sequence[Role]
    forbidden: Sequence[str]
    ordinary: Sequence[str]
    mutants: Mapping[str, Mutant]
    blocks: Mapping[str, int] = field(default_factory=dict)
    initial: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    digest: str = ""

    @property
    def registers(self) -> tuple[str, ...]:
        """Every register, in the order of the roles."""
        return tuple(name for role in self.roles for step in role for name in step.registers)


def store(location: str, value: int, order: str = "plain", width: str = "32") -> Step:
    return Step("store", location, order, width, (), value)


def load(location: str, register: str, order: str = "plain", width: str = "32") -> Step:
    names = (register,) if width == "32" else (f"{register}_low", f"{register}_high")
    return Step("load", location, order, width, names)


def fence(order: str) -> Step:
    return Step("fence", how=order)


def write(location: str, value: int, method: str = SUBJECT) -> Step:
    """Store one word and publish it by the write method."""
    return Step("write", location, method, value=value)


def read(location: str, register: str, method: str = SUBJECT) -> Step:
    """Refresh one word by the read method and load it."""
    return Step("read", location, method, registers=(register,))


def fill(block: str, nbytes: int, method: str = SUBJECT) -> Step:
    """Write the pattern of this instance over a block and publish it."""
    return Step("fill", block, method, value=nbytes)


def check(block: str, nbytes: int, register: str, method: str = SUBJECT) -> Step:
    """1 when any word of the block is not of this instance's pattern, else 0."""
    return Step("check", block, method, registers=(register,), value=nbytes)


def add(location: str, value: int, register: str, order: str = "seq_cst") -> Step:
    return Step("add", location, order, registers=(register,), value=value)


def exchange(location: str, value: int, register: str, order: str = "seq_cst") -> Step:
    return Step("exchange", location, order, registers=(register,), value=value)


def cas(location: str, expected: int, desired: int, register: str, order: str = "seq_cst") -> Step:
    return Step("cas", location, order, registers=(register,), value=expected | desired << 8)


def wait(location: str, value: int, register: str, order: str = "acquire") -> Step:
    """1 once the word has reached `value`; 0 when it never does although the partner has ended."""
    return Step("wait", location, order, registers=(register,), value=value)


def poll(location: str, value: int, register: str, method: str = SUBJECT) -> Step:
    """wait() by the read method."""
    return Step("poll", location, method, registers=(register,), value=value)


def lock(location: str, algorithm: str = SUBJECT) -> Step:
    return Step("lock", location, algorithm)


def unlock(location: str, algorithm: str = SUBJECT) -> Step:
    return Step("unlock", location, algorithm)


def increment(location: str, register: str) -> Step:
    """A plain increment; the register gets the old value."""
    return Step("increment", location, registers=(register,))


def delay(turns: int) -> Step:
    """Up to `turns` turns of arithmetic, seeded."""
    return Step("delay", value=turns)


def outcome(text: str) -> dict[str, int]:
    """{"flag": 1} of "flag=1"."""
    return {name: int(value) for name, _, value in (pair.partition("=") for pair in text.split())}


def matches(text: str, seen: Mapping[str, int]) -> bool:
    """Whether the outcome `seen` is one that `text` stands for."""
    return all(seen[name] == value for name, value in outcome(text).items())
