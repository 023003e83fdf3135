"""Litmus tests as the int32 rows and slots of umsh/device/steps.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umsh.correctness.language import LINE_NBYTES, LOCK_NBYTES, SUBJECT, Litmus, Role, Step
from umsh.correctness.subjects import BY_METHOD, Subject
from umsh.native import lib

Rows = NDArray[np.int32]
Cells = tuple[int, int, int, int]
SLOT_ALIGN_NBYTES = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the locations of one test lie in a slot. offsets: with UMSH_IN_CONTROL; nbytes: of each."""

    offsets: Mapping[str, int]
    nbytes: Mapping[str, int]
    words_slot: int
    control_slot: int


def layout(test: Litmus, offset_nbytes: int) -> Layout:
    """Every location on lines of its own, `offset_nbytes` (a multiple of 8, < 128) into the first."""
    offsets: dict[str, int] = {}
    sizes: dict[str, int] = {}
    used = {"words": 0, "control": 0}
    for step in _steps(test):
        if not step.location or step.location in offsets:
            continue
        place = "words" if step.op in BY_METHOD or test.about != "data" else "control"
        locking = step.op in ("lock", "unlock")
        nbytes = LOCK_NBYTES if locking else test.blocks.get(step.location, 8)
        start = used[place] + (0 if locking else offset_nbytes)
        offsets[step.location] = start | (lib.UMSH_IN_CONTROL if place == "control" else 0)
        sizes[step.location] = 0 if locking else nbytes
        used[place] = -(-(start + nbytes) // LINE_NBYTES) * LINE_NBYTES
    slots = {name: -(-nbytes // SLOT_ALIGN_NBYTES) * SLOT_ALIGN_NBYTES for name, nbytes in used.items()}
    return Layout(offsets, sizes, slots["words"], slots["control"])


def body(role: Role, where: Layout, subject: Subject, registers: Sequence[str]) -> Rows:
    """The rows of one role; its registers are numbered in the order of `registers`."""
    return _rows([_row(step, where, subject, registers) for step in role])


def warm(where: Layout) -> Rows:
    """Load every location, so that the agent holds its old value."""
    sizes = {name: nbytes for name, nbytes in where.nbytes.items() if nbytes}
    return _rows([_pack("warm", where.offsets[name], value=nbytes) for name, nbytes in sizes.items()])


def prelude(test: Litmus, where: Layout, number: int, traffic: int, delay: int) -> Rows:
    """What comes before the body when both roles run at once: set, warm, disturb, meet, wait a little."""
    initial = test.initial if number == 0 else {}
    first = [_pack("store", where.offsets[name], _order("seq_cst"), value=v) for name, v in initial.items()]
    meet = _pack("rendezvous", how=_order("acq_rel" if test.initial else "relaxed"))
    last = [_pack("traffic", value=traffic), meet, _pack("delay", value=delay)]
    return np.concatenate([_rows(first), warm(where), _rows(last)])


def _steps(test: Litmus) -> list[Step]:
    mutated = [step for mutant in test.mutants.values() for role in mutant.roles for step in role]
    return [step for role in test.roles for step in role] + mutated


def _row(step: Step, where: Layout, subject: Subject, registers: Sequence[str]) -> Cells:
    register = registers.index(step.registers[0]) if step.registers else 0
    width = getattr(lib, f"UMSH_WIDTH_{step.width.upper()}")
    location = where.offsets.get(step.location, 0)
    return _pack(step.op, location, _how(step, subject), width, register, step.value)


def _how(step: Step, subject: Subject) -> int:
    if step.op in ("lock", "unlock"):
        if step.how == "test_then_set":
            return int(lib.UMSH_STEP_TEST_THEN_SET)
        return int(getattr(lib, f"UMSH_LOCK_{subject.lock.upper()}"))
    if step.op not in BY_METHOD:
        return _order(step.how)
    method = step.how
    if method == SUBJECT:
        method = subject.write if BY_METHOD[step.op] == "write" else subject.read
    if method == "copy":  # plain accesses; the copy is the hand-over's
        method = "WA" if BY_METHOD[step.op] == "write" else "RA"
    return int(getattr(lib, f"UMSH_METHOD_{method.upper()}"))


def _order(name: str) -> int:
    return int(getattr(lib, f"UMSH_ORDER_{name.upper()}"))


def _pack(
    op: str, location: int = 0, how: int = 0, width: int = 0, register: int = 0, value: int = 0
) -> Cells:
    code = int(getattr(lib, f"UMSH_STEP_{op.upper()}"))
    return code | how << 8 | width << 16, location, register, value


def _rows(rows: Sequence[Cells]) -> Rows:
    return np.array(rows, np.int32).reshape(len(rows), 4)
