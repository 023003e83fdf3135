"""Read-modify-writes and lock algorithms on the modelled machine."""

from __future__ import annotations

from collections.abc import Callable

from umsh.backends.model.cost import COST_NS, poll_ns
from umsh.backends.model.memory import ModelMemory
from umsh.backends.model.port import Port
from umsh.backends.model.schedule import Job

LINE = 128
NEXT, SERVING = 1 * LINE, 2 * LINE  # ticket
WANTS, TURN, SIDE = {"cpu": 1 * LINE, "gpu": 2 * LINE}, 3 * LINE, 4  # Peterson; SIDE: bytes after WANTS
OTHER = {"cpu": "gpu", "gpu": "cpu"}
ALGORITHMS = ("cas", "ticket", "peterson")
TEST_THEN_SET_POLLS = 64


def modify(
    port: Port, memory: ModelMemory, offset: int, change: Callable[[int], int], split: bool = False
) -> Job[int]:
    """One read-modify-write, or two accesses when split or the machine is at fault; returns the old word."""
    if not split and "nonatomic" not in port.faults:
        old = port.modify(memory, offset, change)
        yield COST_NS["modify"]
        return old
    order = "plain" if split else "seq_cst"
    old = port.load(memory, offset, 4, order)
    yield COST_NS["pause"]
    port.store(memory, offset, change(old), 4, order)
    yield COST_NS["store"]
    return old


def take(port: Port, memory: ModelMemory, at: int, algorithm: str, polls_max: int) -> Job[bool]:
    """Take the lock at byte offset `at`; False when polls_max polls did not."""
    if algorithm == "test_then_set":
        yield from _test_then_set(port, memory, at)
        return True
    if algorithm == "ticket":
        ticket = yield from modify(port, memory, at + NEXT, lambda old: old + 1)
        serving = at + SERVING
        taken = yield from _until(port, polls_max, lambda: port.load(memory, serving, 4, "acquire") == ticket)
        return taken
    if algorithm == "peterson":
        other = OTHER[port.name]
        if not (yield from _exchange(port, memory, at + WANTS[port.name] + SIDE, polls_max)):
            return False
        port.store(memory, at + WANTS[port.name], 1, 4, "seq_cst")
        port.store(memory, at + TURN, other == "gpu", 4, "seq_cst")
        yield COST_NS["fence"]
        taken = yield from _until(port, polls_max, lambda: not (
            port.load(memory, at + WANTS[other], 4, "seq_cst")
            and port.load(memory, at + TURN, 4, "seq_cst") == (other == "gpu")
        ))  # fmt: skip
        return taken
    taken = yield from _exchange(port, memory, at, polls_max)
    return taken


def give(port: Port, memory: ModelMemory, at: int, algorithm: str) -> Job[None]:
    """Give the lock back."""
    if algorithm == "ticket":
        serving = port.load(memory, at + SERVING, 4, "relaxed")
        port.store(memory, at + SERVING, serving + 1, 4, "release")
    elif algorithm == "peterson":
        port.store(memory, at + WANTS[port.name], 0, 4, "release")
        port.store(memory, at + WANTS[port.name] + SIDE, 0, 4, "release")
    else:
        port.store(memory, at, 0, 4, "release")
    yield COST_NS["store"]


def _test_then_set(port: Port, memory: ModelMemory, at: int) -> Job[None]:
    for number in range(TEST_THEN_SET_POLLS):
        if port.load(memory, at, 4, "acquire") == 0:
            break
        yield poll_ns(number)
    yield COST_NS["pause"]
    port.store(memory, at, 1, 4, "relaxed")
    yield COST_NS["store"]


def _exchange(port: Port, memory: ModelMemory, at: int, polls_max: int) -> Job[bool]:
    """Compare-exchange the word from 0 to 1."""
    for number in range(polls_max):
        old = yield from modify(port, memory, at, lambda old: old or 1)
        if old == 0:
            return True
        yield poll_ns(number)
    return False


def _until(port: Port, polls_max: int, ready: Callable[[], bool]) -> Job[bool]:
    for number in range(polls_max):
        if ready():
            return True
        yield poll_ns(number)
    return False
