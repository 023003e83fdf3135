"""The child process of a probe: opens the device, answers one JSON line with another until its input ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from umsh.errors import UmshError


def main() -> int:
    """Serve requests from stdin; answers go to stdout, what drivers print to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            answers.write(msgspec.json.encode(_serve(msgspec.json.decode(line))) + b"\n")
            answers.flush()
    return 0


def _end_with(parent: int) -> None:
    """End this process soon after its parent, even while a step hangs: nobody waits for its answer."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": STEPS[request.pop("do")](**request)}
    except UmshError as error:
        return {"error": type(error).__name__, "parts": [error.state, error.consequence, error.next_step]}
    except Exception:  # told to the parent whole, which raises it: nothing is swallowed
        return {"error": "", "parts": [traceback.format_exc()]}


def _open(device: int | str) -> Any:
    from umsh.backends import open_device

    return open_device(device)


def facts(device: int | str, quick: bool) -> Any:
    """Everything that is asked before anything is tried."""
    from umsh.probe.asked import ask

    return msgspec.to_builtins(ask(_open(device), quick))


def force(device: int | str) -> Any:
    """What is in force on the device now."""
    from umsh.probe.force import force_of

    return msgspec.to_builtins(force_of(_open(device)))


def verdict(
    device: int | str, test: str, subject: str, direction: str, n: int, seed: int, limit_s: float
) -> Any:
    """One litmus test of one subject in one direction."""
    from umsh.correctness.litmus import tests
    from umsh.correctness.run import run_test

    return [run_test(_open(device), tests()[test], subject, direction, n, seed, limit_s).to_dict()]


def bench(
    device: int | str,
    bench: str,
    parameters: dict[str, Any],
    quick: bool,
    seed: int,
    kept: list[str] | None,
    scratch: str,
) -> Any:
    """One group of a benchmark; a group that this machine cannot take is waived with the reason."""
    from umsh.microbench.catalogue import benchmarks
    from umsh.microbench.definition import Rig
    from umsh.microbench.measure import FULL, QUICK, measure, waived

    definition = benchmarks()[bench]
    try:
        with Rig(_open(device), seed, Path(scratch)) as rig:
            records = measure(rig, definition, parameters, QUICK if quick else FULL, seed, kept)
    except UmshError as error:
        records = [waived(definition, parameters, "all", error.state)]
    return msgspec.to_builtins(records)


STEPS: dict[str, Callable[..., Any]] = {"facts": facts, "force": force, "verdict": verdict, "bench": bench}

if __name__ == "__main__":
    sys.exit(main())
