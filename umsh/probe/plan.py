"""The plan of a probe: its steps in order, how long each should take and how long it may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from umsh.correctness.arena import DEADLINE_S
from umsh.correctness.run import RUN_S
from umsh.mechanism import Mechanism
from umsh.probe.asked import Asked
from umsh.probe.evidence import directions_of, standing
from umsh.profile import VerdictRecord

BUILD_S = 30.0  # a new process builds the kernels that play a test
# The last chunk begins within RUN_S and ends within DEADLINE_S: later it hangs, sooner it may be just slow.
VERDICT_MAX_S = BUILD_S + RUN_S + DEADLINE_S


@dataclass(frozen=True, slots=True)
class Effort:
    """n: instances of one litmus run, fewer where they take limit_s. The rest are seconds: a verdict's
    as expected, a group's as expected and at most."""

    n: int
    limit_s: float
    verdict_s: float
    group_s: float
    group_max_s: float


# 960: where the doubling chunks of a mutant end (64 + 128 + 256 + 512), so that none goes on for a few more.
QUICK = Effort(n=960, limit_s=0.05, verdict_s=0.08, group_s=1.0, group_max_s=90.0)
FULL = Effort(n=20_000, limit_s=1.0, verdict_s=0.5, group_s=6.0, group_max_s=400.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One request to the child process. key: unique in the plan. say: what a person reads meanwhile."""

    key: str
    kind: str
    say: str
    expected_s: float
    deadline_s: float
    request: dict[str, Any] = field(hash=False)


def effort(quick: bool) -> Effort:
    return QUICK if quick else FULL


def verdict_steps(asked: Asked, device: int | str, quick: bool, seed: int) -> Iterator[Step]:
    """One step for each test, subject and direction."""
    how = effort(quick)
    for test, subject, direction in asked.litmus:
        yield Step(
            key=f"verdict {test} {subject} {direction}", kind="verdict",
            say=f"{test}  {subject}  {direction}", expected_s=how.verdict_s, deadline_s=VERDICT_MAX_S,
            request={"do": "verdict", "device": device, "test": test, "subject": subject,
                     "direction": direction, "n": how.n, "seed": seed, "limit_s": how.limit_s},
        )  # fmt: skip


def bench_steps(
    asked: Asked, device: int | str, quick: bool, seed: int, scratch: str, kept: dict[str, list[str]] | None
) -> Iterator[Step]:
    """One step for each benchmark and point. kept: subjects that may be timed, by benchmark; None: all."""
    how = effort(quick)
    for bench, parameters in asked.benches:
        shown = " ".join(f"{name}={value}" for name, value in parameters.items())
        yield Step(
            key=f"bench {bench} {shown}", kind="bench", say=f"{bench}  {shown}",
            expected_s=how.group_s, deadline_s=how.group_max_s,
            request={"do": "bench", "device": device, "bench": bench, "parameters": parameters,
                     "quick": quick, "seed": seed, "scratch": scratch,
                     "kept": None if kept is None else kept.get(bench)},
        )  # fmt: skip


def kept_subjects(asked: Asked, verdicts: Sequence[VerdictRecord]) -> dict[str, list[str]]:
    """Which candidates of each benchmark may be timed: those kept in the way they are timed."""

    def mechanisms(direction: str) -> list[str]:
        ways = directions_of(direction)
        return [
            record.name for record in asked.mechanisms
            if standing(verdicts, Mechanism.parse(record.name).sharing, "kernel", ways).verdict == "kept"
        ]  # fmt: skip

    subjects = {v.subject for v in verdicts if standing(verdicts, v.subject).verdict == "kept"}
    locks = sorted(s.removeprefix("lock:") for s in subjects if s.startswith("lock:"))
    to_gpu = mechanisms("cpu->gpu")
    return {
        "cpu_to_gpu": to_gpu,
        "zero_copy": to_gpu,
        "file_to_gpu": to_gpu,
        "gpu_to_cpu": mechanisms("gpu->cpu"),
        "flag": sorted(s for s in subjects if ":" not in s),
        "lock": locks,
    }


def ended(step: Step, how: str) -> list[dict[str, Any]]:
    """The record of a step whose process hung or died: a broken verdict, or a waived measurement."""
    request = step.request
    if step.kind == "bench":
        from umsh.microbench.catalogue import benchmarks
        from umsh.microbench.measure import waived

        record = waived(benchmarks()[request["bench"]], request["parameters"], "all", how)
        return [msgspec.to_builtins(record)]
    return [_verdict(step, "broken", how)]


def spared(step: Step, lost: str) -> list[dict[str, Any]]:
    """The record of a litmus test that is not run because another one, `lost`, cost this subject a process.

    The subject is broken already, and every further test of it might cost its whole deadline.
    """
    return [_verdict(step, "unproven", f"not run, since this subject ended the process of {lost}")]


def way(step: Step) -> tuple[str, str]:
    """What a litmus step judges: subject and direction."""
    return step.request["subject"], step.request["direction"]


def _verdict(step: Step, verdict: str, reason: str) -> dict[str, Any]:
    from umsh.correctness.litmus import tests
    from umsh.correctness.verdict import Verdict

    test = tests()[step.request["test"]]
    subject, direction = way(step)
    return Verdict(
        test=test.name, test_hash=test.digest, subject=subject, direction=direction,
        boundary=test.boundary, verdict=verdict, reason=reason, seed=step.request["seed"],
    ).to_dict()  # fmt: skip
