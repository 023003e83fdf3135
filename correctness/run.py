"""Run one litmus test on one subject in one direction, and its mutants under the same stress."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umsh.backends.driver import Device
from umsh.correctness.arena import DEADLINE_S, Arena, safe_kind
from umsh.correctness.encode import Layout, body, layout, prelude, warm
from umsh.correctness.language import Litmus, Mutant, Role
from umsh.correctness.stress import Plan, Stress, plan
from umsh.correctness.subjects import Subject, agents, subject_of
from umsh.correctness.verdict import IN_VAIN, Tally, Verdict, count_forbidden, judge, missing
from umsh.errors import WaitTimeout

CHUNK_FIRST, CHUNK_MAX = 512, 8192  # instances of one launch
MUTANT_FIRST = 64  # of a mutant's first launch: most are caught at once
WEAK_N = 1000  # instances that a weak mutant gets at most, or a quarter of n
HAND_OVER = 256  # instances that one hand-over between kernels carries
RUN_S = 20.0  # a test and its mutants begin no chunk after that: on a machine this busy they prove little
PAUSE_S = 0.005  # before more of the same, so that the system may place the agents' threads anew
STRETCH = 8  # a run goes on to this many times n while an ordinary outcome is missing
NO_SAFE_KIND = "no memory kind is documented as coherent inside a kernel, so nothing can carry the rendezvous"


@dataclass(frozen=True, slots=True)
class Game:
    """One set of roles of a test (its own or a mutant's), ready to be played until latest_s (monotonic)."""

    device: Device
    test: Litmus
    subject: Subject
    direction: str
    where: Layout
    plan: Plan
    roles: Sequence[Role]
    latest_s: float
    unordered: bool = False


def run_test(
    device: Device, test: Litmus, subject: str, direction: str, n: int, seed: int, limit_s: float = RUN_S
) -> Verdict:
    """The verdict of `n` or more instances. It always ends: every loop below has a bound.

    limit_s: a run that has taken so long is done before n instances; the verdict tells how many it had.

    direction: "cpu->gpu" gives the even roles to the CPU, "gpu->cpu" to the GPU. seed: of all
    stress. DeviceError when the device itself fails.
    """
    found = subject_of(device, test, direction, subject)
    absent = found.absent or ("" if safe_kind(device) else NO_SAFE_KIND)
    about: dict[str, Any] = {
        "test": test.name, "test_hash": test.digest, "subject": subject, "direction": direction,
        "boundary": test.boundary, "seed": seed,
    }  # fmt: skip
    if absent:
        return Verdict(**about, verdict="absent", reason=absent)
    settings = plan(seed)
    where = layout(test, settings.offset_nbytes)
    game = Game(device, test, found, direction, where, settings, test.roles, time.monotonic() + RUN_S)
    late_s = time.monotonic() + limit_s
    tally = _play(
        game, n, CHUNK_FIRST, lambda seen, done: _settled(test, seen, done >= n or time.monotonic() > late_s)
    )
    bad = count_forbidden(test, tally.outcomes)
    mutants = {} if bad or tally.stopped else {
        name: _mutant(game, mutant, n, limit_s) for name, mutant in test.mutants.items()
    }  # fmt: skip
    verdict, reason = judge(test, tally, mutants)
    return Verdict(
        **about, verdict=verdict, reason=reason, n=tally.n, forbidden=bad,
        bound=min(1.0, 3 / tally.n) if tally.n and not bad else 1.0,
        outcomes=dict(tally.outcomes), ordinary_missing=missing(test, tally.outcomes), mutants=mutants,
        settings=_settings(game),
    )  # fmt: skip


def _settled(test: Litmus, seen: Counter[str], long_enough: bool) -> bool:
    return count_forbidden(test, seen) > 0 or (long_enough and not missing(test, seen))


def _settings(game: Game) -> dict[str, Any]:
    shared = {"offset_nbytes": game.plan.offset_nbytes, "slots": _slots(game)}
    return shared if game.test.boundary == "inside" else {**shared, "instances_per_hand_over": HAND_OVER}


def _mutant(game: Game, mutant: Mutant, n: int, limit_s: float) -> str:
    """Play a mutant until it shows a forbidden outcome, for at most STRETCH * n instances.

    One that need not show anything here gets fewer, and at most limit_s.
    """
    test = game.test
    same = replace(game, roles=mutant.roles, unordered=mutant.unordered)
    near = game.device.cpu.pace == game.device.gpu.pace
    always = mutant.observable == "always" or (mutant.observable == "near" and near)
    some = STRETCH * n if always else max(n // 4, min(n, WEAK_N))
    first = min(MUTANT_FIRST, max(1, n // 4))
    late_s = time.monotonic() + (RUN_S if always else limit_s)
    tally = _play(
        same, n, first,
        lambda seen, done: count_forbidden(test, seen) > 0 or done >= some or time.monotonic() > late_s,
    )  # fmt: skip
    if count_forbidden(test, tally.outcomes):
        return "caught"
    return "missed" if always else "not observable here"


def _slots(game: Game) -> int:
    return game.plan.slots if game.test.boundary == "inside" else HAND_OVER


def _play(game: Game, n: int, first: int, enough: Callable[[Counter[str], int], bool]) -> Tally:
    """Play chunks until `enough`, until the roles stop by themselves, STRETCH * n instances or RUN_S."""
    seen: Counter[str] = Counter()
    done = 0
    once = _inside if game.test.boundary == "inside" else _hand_over
    with Arena(game.device, game.subject, game.where, len(game.roles), _slots(game), CHUNK_MAX) as arena:
        for number, instances in enumerate(_chunks(game.test.boundary, n, first)):
            try:
                completed, registers = once(arena, game, game.plan.chunk(number), instances)
            except WaitTimeout as error:
                arena.abandon()
                return Tally(done, seen, f"an agent did not end: {error.state}")
            seen.update(_histogram(game.test.registers, registers[:completed]))
            done += completed
            arena.advance(instances)
            if completed < instances:
                return Tally(done, seen, IN_VAIN)
            if enough(seen, done):
                break
            if time.monotonic() > game.latest_s:
                return Tally(done, seen, f"{RUN_S:.0f} s were over, the agents hardly run at the same time")
            if done >= n:
                time.sleep(PAUSE_S)
    return Tally(done, seen)


def _chunks(boundary: str, n: int, first: int) -> Iterator[int]:
    """Sizes of the chunks, STRETCH * n instances in all; inside a kernel from `first` upwards."""
    size, left = min(n, first if boundary == "inside" else HAND_OVER), STRETCH * n
    while left > 0:
        yield min(size, left)
        left -= size
        if boundary == "inside":
            size = min(2 * size, CHUNK_MAX)


def _inside(arena: Arena, game: Game, stress: Stress, instances: int) -> tuple[int, NDArray[np.uint32]]:
    """Both roles at once; the GPU is started first, it takes longer to begin."""
    arena.begin()
    pair = agents(game.device, game.direction)
    names = [_registers(role) for role in game.test.roles]
    running = {}
    for number in sorted((0, 1), key=lambda number: pair[number].kind == "cpu"):
        program = np.concatenate([
            prelude(game.test, game.where, number, stress.traffic, stress.delay),
            body(game.roles[number], game.where, game.subject, names[number]),
        ])  # fmt: skip
        running[number] = arena.start(pair[number], number, program, len(names[number]), instances, stress)
    completed = min(running[number].result(DEADLINE_S) for number in (0, 1))
    return completed, _observed(arena, names, instances)


def _hand_over(arena: Arena, game: Game, stress: Stress, instances: int) -> tuple[int, NDArray[np.uint32]]:
    """The roles one after another, each a kernel or a call; readers hold the old values before."""
    arena.begin()
    pair = agents(game.device, game.direction)
    names = [_registers(role) for role in game.test.roles]
    programs = [
        body(role, game.where, game.subject, own) for role, own in zip(game.roles, names, strict=True)
    ]
    for agent in pair[::-1]:
        arena.start(agent, 0, warm(game.where), 0, instances, stress).result(DEADLINE_S)
    order = range(len(programs))
    running = []
    for number in reversed(order) if game.unordered else order:
        agent = pair[number % 2]
        running.append(arena.start(agent, number, programs[number], len(names[number]), instances, stress))
        if not game.unordered:
            running[-1].result(DEADLINE_S)
            arena.hand_over(agent)
    if game.unordered:
        for one in running:
            one.result(DEADLINE_S)
    return instances, _observed(arena, names, instances)


def _registers(role: Role) -> list[str]:
    return [name for step in role for name in step.registers]


def _observed(arena: Arena, names: list[list[str]], instances: int) -> NDArray[np.uint32]:
    parts = [arena.seen(number, len(own), instances) for number, own in enumerate(names)]
    return np.concatenate(parts, axis=1)


def _histogram(names: Sequence[str], registers: NDArray[np.uint32]) -> dict[str, int]:
    """Outcome text -> count. Values above 15 cannot be of this instance; they show as 15."""
    keys = np.zeros(len(registers), np.int64)
    for column in registers.T:
        keys = keys * 16 + np.minimum(column, 15)
    found, counts = np.unique(keys, return_counts=True)
    texts = (_text(names, int(key)) for key in found)
    return dict(zip(texts, map(int, counts), strict=True))


def _text(names: Sequence[str], key: int) -> str:
    values = [(key >> 4 * place) & 15 for place in reversed(range(len(names)))]
    return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
