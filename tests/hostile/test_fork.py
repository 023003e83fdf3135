"""Fork and spawn: a forked child gets an exception and frees nothing (contract B8, P1-P3; A09)."""

from __future__ import annotations

import base64
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import DeviceError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

Fork = Callable[[Callable[[], object]], str]


@pytest.fixture
def region(device: Any) -> umsh.Region:
    return umsh.bind((16, 64), "f4", device="opencl:0")


def test_every_verb_in_a_forked_child_says_so(region: umsh.Region, fork: Fork) -> None:
    """A09: https://github.com/google/gvisor/pull/14031"""
    inside = umsh.bind(64, "u4", boundary="inside", device="opencl:0")
    flag, lock, word = umsh.Flag(device="opencl:0"), umsh.Lock(device="opencl:0"), inside.word(0)
    uses: list[Callable[[], object]] = [
        lambda: umsh.read(region),
        lambda: umsh.write(region, np.zeros((16, 64), "f4")),
        lambda: umsh.unbind(region),
        lambda: region.on_cpu().__enter__(),
        lambda: region.on_gpu().__enter__(),
        lambda: region.share(),
        lambda: inside.cpu,
        lambda: umsh.read(inside),
        lambda: umsh.set(flag, 1),
        lambda: umsh.wait(flag, 0),
        lambda: flag.value,
        lambda: umsh.lock(lock),
        lambda: umsh.unlock(lock),
        lambda: lock.__enter__(),
        lambda: umsh.acquire(word),
        lambda: umsh.release(word, 1),
        lambda: umsh.acquire(flag),
    ]
    for use in uses:
        told = fork(use)
        assert told.startswith("TurnError"), told
        assert "forked child" in told
    umsh.set(flag, 1)
    umsh.wait(flag, 1)
    with lock:
        umsh.write(region, np.ones((16, 64), "f4"))
    assert umsh.read(region).sum() == 1024


def test_an_array_of_an_open_turn_raises_in_the_child_and_works_in_the_parent(
    region: umsh.Region, fork: Fork
) -> None:
    with region.on_cpu(write=True) as a:
        told = fork(lambda: a[0, 0])
        assert told.startswith("TurnError")
        a[:] = 2
    assert umsh.read(region).sum() == 2048


def test_binding_in_a_forked_child_is_refused_at_once(region: umsh.Region, fork: Fork) -> None:
    assert fork(lambda: umsh.bind(8, "u1", device="opencl:0")).startswith("DeviceError")
    assert fork(lambda: umsh.Flag(device="opencl:0")).startswith("DeviceError")


def test_a_child_that_drops_everything_frees_nothing_of_the_parents(region: umsh.Region, fork: Fork) -> None:
    box = [umsh.bind((16, 64), "f4", mechanism=name, device="opencl:0")
           for name in ("svm.driver:WA/RA", "system.4k:WA/RA", "copy.4k:copy/copy")]  # fmt: skip
    for one in box:
        umsh.write(one, np.full((16, 64), 3, "f4"))
    flags = [umsh.Flag(device="opencl:0")]

    def drop() -> None:
        box.clear()
        flags.clear()
        gc.collect()

    assert fork(drop) == "ok"
    for one in box:
        assert (umsh.read(one) == 3).all()
    umsh.set(flags[0], 1)


def test_a_child_that_exits_by_itself_ends_cleanly(region: umsh.Region) -> None:
    """Finalisers run at the child's exit; none may touch the parent's memory or hang."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=os.getpid)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    umsh.write(region, np.ones((16, 64), "f4"))


# ---- spawned processes --------------------------------------------------------------------


READER = """
region = umsh.attach(take())
assert (umsh.read(region) == 3).all()
umsh.write(region, np.full(region.shape, 4, region.dtype))
give((region.shape, str(region.dtype), region.effective.name))
take()
with region.on_gpu() as g:
    assert (np.from_dlpack(g) == 5).all()
give("seen")
"""
OWNER = """
region = umsh.bind(64, "u4", mechanism="system.4k:WA/RA", shared=True, device="opencl:0")
give(region.share())
take()
os._exit(9)
"""


class Other:
    """A fresh process that runs `body`, with give() and take() to talk to this one."""

    HEAD = """
import base64, os, pickle, sys, numpy as np, umsh
def give(what): print(base64.b64encode(pickle.dumps(what)).decode(), flush=True)
def take(): return pickle.loads(base64.b64decode(sys.stdin.readline()))
"""

    def __init__(self, body: str) -> None:
        command = [sys.executable, "-c", self.HEAD + body]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def give(self, what: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(base64.b64encode(pickle.dumps(what)).decode() + "\n")
        self.process.stdin.flush()

    def take(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()  # ends at the latest with the process
        assert line, f"the other process ended with {self.process.wait(60)}"
        return pickle.loads(base64.b64decode(line))


@pytest.fixture
def other() -> Iterator[Callable[[str], Other]]:
    made: list[Other] = []

    def start(body: str) -> Other:
        made.append(Other(body))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.communicate(timeout=60)


def test_a_spawned_process_attaches_the_same_bytes(device: Any, other: Callable[[str], Other]) -> None:
    """P1"""
    region = umsh.bind((4, 16), "f4", mechanism="system.4k:WA/RA", shared=True, device="opencl:0")
    umsh.write(region, np.full((4, 16), 3, "f4"))
    reader = other(READER)
    reader.give(region.share())
    assert reader.take() == ((4, 16), "float32", "system.4k:WA/RA")
    assert (umsh.read(region) == 4).all()
    umsh.write(region, np.full((4, 16), 5, "f4"))
    reader.give("go")
    assert reader.take() == "seen"
    assert reader.process.wait(60) == 0


def test_attach_after_the_owner_died_is_an_error(device: Any, other: Callable[[str], Other]) -> None:
    """P2"""
    owner = other(OWNER)
    handle = owner.take()
    attached = umsh.attach(handle)
    umsh.write(attached, np.full(64, 8, "u4"))
    owner.give("die")
    assert owner.process.wait(60) == 9
    with pytest.raises(DeviceError):
        umsh.attach(handle)
    assert (umsh.read(attached) == 8).all()  # who holds it keeps it


def test_memory_that_stays_in_one_process_is_not_shared(region: umsh.Region) -> None:
    with pytest.raises(UnsupportedError, match="shared=True"):
        region.share()
    with pytest.raises(UnsupportedError, match="system"):
        umsh.bind(64, "u1", shared=True, device="opencl:0", mechanism="svm.driver:WA/RA")


def test_without_proof_shared_memory_names_what_each_kind_lacks(device: Any) -> None:
    if any(kind.name == "system" and kind.documented for kind in device.memory_kinds()):
        pytest.skip("this device documents fine-grain system memory")
    with pytest.raises(UnsupportedError, match=r"svm: .*copy: .*Run umsh-probe"):
        umsh.bind(64, "u1", shared=True, device="opencl:0")
