"""Cost of one call of a verb from Python, beside a bare cffi call on the same memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from timeit import Timer
from typing import Any

from umsh.backends.driver import Device
from umsh.microbench.definition import Benchmark, Parameters, Rig, Sample, real_only

CALLS = 2_000
REGION_BYTES = 4096
BARE = "bare cffi call"
# Candidate -> (statement, verbs called in it). timeit compiles the statement into its loop.
STATEMENTS = {
    BARE: ("load(address)", 1),
    "wait, already set": ("wait(flag, 1)", 1),
    "set": ("set(flag, 1)", 1),
    "lock, unlock": ("lock(mutex); unlock(mutex)", 2),
    "acquire": ("acquire(word)", 1),
    "release": ("release(word, 7)", 1),
    "write 4 KiB": ("write(region, array)", 1),
    "read 4 KiB": ("read(region, out)", 1),
}


def points(device: Device, quick: bool) -> Sequence[Parameters]:
    return [{"calls": CALLS}]


def candidates(device: Device, parameters: Parameters) -> Mapping[str, str]:
    return dict.fromkeys(STATEMENTS, "")


def run(rig: Rig, subject: str, parameters: Parameters) -> Sample:
    """Mean over `calls` calls in a row; what they left behind is looked at afterwards."""
    import umsh

    statement, verbs = STATEMENTS[subject]
    calls = int(parameters["calls"])
    names = _names(f"{rig.device.driver}:{rig.device.index}")
    ns = Timer(statement, timer=rig.clock_ns, globals=names).timeit(calls)
    umsh.read(names["region"], names["out"])
    wrote = subject != "write 4 KiB" or bool((names["out"] == names["array"]).all())
    right = names["flag"].value == 1 and umsh.acquire(names["word"]) == 7 and wrote
    return Sample({"call": ns / calls / verbs}, right)


def _names(device: str) -> dict[str, Any]:
    """What the statements name: the verbs, and a flag, lock, word and region for them."""
    import numpy as np

    import umsh
    from umsh.native import lib

    flag, words = umsh.Flag(device=device), umsh.bind(32, "uint32", boundary="inside", device=device)
    word = words.word(0)
    umsh.set(flag, 1)
    umsh.release(word, 7)
    array = np.arange(REGION_BYTES, dtype=np.uint8)
    region = umsh.bind(REGION_BYTES, "uint8", direction="both", device=device)
    return {
        "load": lib.umsh_load_acquire, "address": flag.ptr, "flag": flag, "word": word, "region": region,
        "mutex": umsh.Lock(device=device), "array": array, "out": np.zeros_like(array),
        "wait": umsh.wait, "set": umsh.set, "lock": umsh.lock, "unlock": umsh.unlock,
        "acquire": umsh.acquire, "release": umsh.release, "write": umsh.write, "read": umsh.read,
    }  # fmt: skip


BENCHMARK = Benchmark(
    key="verbs",
    prose="One call of a verb from Python, mean over many in a row, beside a bare cffi call of an acquire.",
    units={"call": "ns"},
    parameters=points,
    subjects=candidates,
    run=run,
    applies=real_only,
    baselines=(BARE,),
)
