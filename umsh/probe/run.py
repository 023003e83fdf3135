"""Run a probe: facts, verdicts, samples, profile, choice; resumable, risky steps in a child process."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from umsh import choice as choices
from umsh import profile as profiles
from umsh.errors import DeviceError
from umsh.probe import generate
from umsh.probe.asked import Asked
from umsh.probe.child import START_S, Child, ChildError
from umsh.probe.evidence import noise_of
from umsh.probe.force import Force
from umsh.probe.journal import Journal, exclusive
from umsh.probe.plan import Step, bench_steps, ended, kept_subjects, spared, verdict_steps, way
from umsh.probe.stats import noise_verdict
from umsh.profile import Profile, SampleRecord, VerdictRecord

PROFILE, CHOICE = "profile.json", "choice.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a probe is asked for. output: folder for its files; None is where `import umsh` looks.

    benches: benchmarks to measure; None is all. verdicts: whether litmus tests run first.
    wait_s: how long to wait for another probe to end. purpose: an interrupted probe is resumed by one of
    the same purpose.
    """

    device: int | str = 0
    quick: bool = False
    seed: int = 1
    output: Path | None = None
    benches: tuple[str, ...] | None = None
    verdicts: bool = True
    wait_s: float = 0.0
    purpose: str = "probe"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a probe stands: steps done and in all, and the estimate of the seconds left."""

    say: str
    done: int
    total: int
    left_s: float


Tell = Callable[[Progress], None]


PACE_KNOWN_S = 3.0  # before so much was expected to be done, its pace is no estimate


class Clock:
    """Estimates the time left from what steps were expected to take and what they took."""

    def __init__(self) -> None:
        self._expected: defaultdict[str, float] = defaultdict(float)
        self._taken: defaultdict[str, float] = defaultdict(float)

    def took(self, step: Step, seconds: float) -> None:
        """Learn from a step of its kind."""
        self._expected[step.kind] += step.expected_s
        self._taken[step.kind] += seconds

    def left_s(self, steps: Iterable[Step]) -> float:
        """Seconds that steps should take, at the pace of those of their kind so far."""
        return sum(step.expected_s * self._pace(step.kind) for step in steps)

    def _pace(self, kind: str) -> float:
        known = self._expected[kind]
        return self._taken[kind] / known if known > PACE_KNOWN_S else 1.0


def ask(settings: Settings, child: Child) -> Asked:
    """The device's facts, asked in a child process: opening a device may end the process that does it."""
    request = {"do": "facts", "device": settings.device, "quick": settings.quick}
    try:
        return msgspec.convert(child.ask(request, START_S), Asked)
    except ChildError as death:
        raise _unopened(settings.device, death) from death


def force(settings: Settings) -> Force:
    """What is in force on the device now, asked in a process that has not read a choice yet."""
    with Child() as child:
        try:
            return msgspec.convert(child.ask({"do": "force", "device": settings.device}, START_S), Force)
        except ChildError as death:
            raise _unopened(settings.device, death) from death


def _unopened(device: int | str, death: ChildError) -> DeviceError:
    return DeviceError(
        f"Opening device {device} ended the process that tried: {death}.",
        "No device can be used.",
        "Look at the message; a broken driver installation is the usual cause.",
    )


class Probe:
    """One probe of one device; a context that holds the lock, the child process and the journal."""

    def __init__(self, settings: Settings, tell: Tell) -> None:
        self.settings = settings
        self._tell = tell
        self._clock = Clock()
        self._stack = ExitStack()
        self._lost: dict[tuple[str, str], str] = {}  # subject and direction: the test that ended its process
        self.finished = False

    def __enter__(self) -> Probe:
        with ExitStack() as stack:
            stack.enter_context(exclusive(self.settings.wait_s))
            self._child = stack.enter_context(Child())
            self.asked = ask(self.settings, self._child)
            self.folder = self.settings.output or Path(self.asked.folder)
            self._journal = Journal(self.folder, self._heading())
            # Large files lie here, and go even when the child that wrote them was ended.
            self._scratch = stack.enter_context(TemporaryDirectory(prefix="umsh-bench-", dir=self.folder))
            stack.callback(self._child.close)
            stack.callback(lambda: self._journal.close(self.finished))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def expected_s(self) -> float:
        """About how long the steps that are left should take."""
        steps = [*self._tests(), *self._benches(None)]
        return self._clock.left_s(step for step in steps if step.key not in self._journal.done)

    @property
    def resumed(self) -> int:
        """Steps that an interrupted probe had finished and that count now."""
        return len(self._journal.done)

    def run(self) -> Profile:
        """Verdicts, then samples; the profile they make. It is written by write()."""
        tests = self._tests()
        verdicts = msgspec.convert(self._steps(tests, 0, self._benches(None)), list[VerdictRecord])
        kept = kept_subjects(self.asked, verdicts) if self.settings.verdicts else None
        samples = msgspec.convert(self._steps(self._benches(kept), len(tests), []), list[SampleRecord])
        return self._profile(verdicts, samples)

    def write(self, profile: Profile) -> tuple[choices.Choice | None, str]:
        """Save profile and choice. (None, reason) when the machine was too noisy: the old choice stays."""
        path = self.folder / PROFILE
        profiles.save(profile, path)
        self.finished = True
        if reason := noise_verdict(profile.noise):
            return None, reason
        choice = generate.from_file(path, PROFILE)
        choices.save(choice, self.folder / CHOICE)
        return choice, ""

    def verify(self, force: Force) -> list[VerdictRecord]:
        """Litmus results, anew, of everything that is in force."""
        data = {(sharing, way) for sharing, way, _ in force.data}
        litmus = [one for one in self.asked.litmus if one[1] in force.control or one[1:] in data]
        asked = msgspec.structs.replace(self.asked, litmus=litmus)
        return msgspec.convert(self._steps(self._tests(asked), 0, []), list[VerdictRecord])

    def _heading(self) -> dict[str, Any]:
        """What must be equal for steps of an interrupted probe to count."""
        ask = self.settings
        return {
            "umsh": self.asked.umsh, "device": self.asked.device, "identity": self.asked.identity,
            "purpose": ask.purpose, "quick": ask.quick, "seed": ask.seed,
        }  # fmt: skip

    def _tests(self, asked: Asked | None = None) -> list[Step]:
        ask = self.settings
        if not ask.verdicts:
            return []
        return list(verdict_steps(asked or self.asked, ask.device, ask.quick, ask.seed))

    def _benches(self, kept: dict[str, list[str]] | None) -> list[Step]:
        ask = self.settings
        steps = bench_steps(self.asked, ask.device, ask.quick, ask.seed, self._scratch, kept)
        return [s for s in steps if ask.benches is None or s.request["bench"] in ask.benches]

    def _steps(self, steps: Sequence[Step], before: int, later: Sequence[Step]) -> list[Any]:
        """Records of all steps; those in the journal are not done again. before, later: steps around them."""
        records: list[Any] = []
        for place, step in enumerate(steps):
            if step.key not in self._journal.done:
                left = self._clock.left_s([*steps[place:], *later])
                total = before + len(steps) + len(later)
                self._tell(Progress(step.say, before + place, total, left))
                self._journal.add(step.key, self._do(step))
            records += self._journal.done[step.key]
        return records

    def _do(self, step: Step) -> Any:
        litmus = step.kind == "verdict"
        if litmus and way(step) in self._lost:
            return spared(step, self._lost[way(step)])
        if not self._child.running:
            ask(self.settings, self._child)  # the start of a new process is no part of the step
        start = time.monotonic()
        try:
            return self._child.ask(step.request, step.deadline_s)
        except ChildError as death:
            if litmus:
                self._lost[way(step)] = step.request["test"]
            return ended(step, str(death))
        finally:
            self._clock.took(step, time.monotonic() - start)

    def _profile(self, verdicts: list[VerdictRecord], samples: list[SampleRecord]) -> Profile:
        asked = self.asked
        return Profile(
            umsh=asked.umsh,
            made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            provenance=asked.provenance,
            platform=asked.platform,
            driver=asked.driver,
            device=asked.device,
            quick=self.settings.quick,
            seed=self.settings.seed,
            identity=asked.identity,
            facts=asked.facts,
            mechanisms=asked.mechanisms,
            verdicts=verdicts,
            samples=samples,
            noise=noise_of(samples),
        )
