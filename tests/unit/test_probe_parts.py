"""The parts of a probe: journal, lock, child process, plan and estimate of the time left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from umsh.correctness.arena import DEADLINE_S
from umsh.correctness.run import RUN_S
from umsh.errors import DeviceError, RecordError
from umsh.probe.asked import Asked
from umsh.probe.child import Child, ChildError
from umsh.probe.evidence import noise_of, standing
from umsh.probe.journal import Journal, ProbeRunningError, exclusive
from umsh.probe.plan import Step, bench_steps, ended, kept_subjects, verdict_steps
from umsh.probe.run import Clock, Probe, Settings
from umsh.profile import MechanismRecord, SampleRecord, VerdictRecord

HEADING = {"device": "one", "seed": 1}
# A child that answers like the worker: its request says what to do.
SCRIPT = """
import json, os, sys, time
for line in sys.stdin:
    do = json.loads(line)["do"]
    if do == "hang": time.sleep(60)
    if do == "die": print("the driver gave up", file=sys.stderr, flush=True); os.abort()
    if do == "leave": sys.exit(3)
    if do == "typed": answer = {"error": "DeviceError", "parts": ["No device.", "Nothing.", "Plug one in."]}
    elif do == "bug": answer = {"error": "", "parts": ["Traceback: a bug"]}
    else: answer = {"answer": do * 40000}
    print(json.dumps(answer), flush=True)
    if do == "last": sys.exit(3)
"""


@pytest.fixture
def child() -> Any:
    with Child(("-c", SCRIPT)) as made:
        yield made


def step(kind: str, expected_s: float) -> Step:
    return Step(f"{kind} {expected_s}", kind, "", expected_s, 10.0, {})


def asked(**more: Any) -> Asked:
    plain: dict[str, Any] = {
        "umsh": "0", "folder": "", "provenance": "measured", "platform": "host", "driver": "opencl",
        "device": "d", "identity": {}, "facts": {},
        "kinds": [], "methods": {}, "mechanisms": [], "litmus": [], "benches": [],
    }  # fmt: skip
    return Asked(**{**plain, **more})


def verdict(
    subject: str, verdict: str, direction: str = "cpu->gpu", boundary: str = "kernel"
) -> VerdictRecord:
    return VerdictRecord(
        test="handover", test_hash="0", subject=subject, direction=direction, boundary=boundary,
        verdict=verdict, reason="because", n=100, forbidden=0, bound=0.03, outcomes={}, ordinary_missing=[],
        mutants={}, seed=1, settings={},
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_journal_gives_back_what_was_finished(tmp_path: Path) -> None:
    first = Journal(tmp_path, HEADING)
    first.add("one", [1, 2])
    first.close(finished=False)
    second = Journal(tmp_path, HEADING)
    assert second.done == {"one": [1, 2]}
    second.add("two", [])
    second.close(finished=False)
    assert Journal(tmp_path, HEADING).done == {"one": [1, 2], "two": []}


def test_a_journal_of_another_machine_or_seed_does_not_count(tmp_path: Path) -> None:
    first = Journal(tmp_path, HEADING)
    first.add("one", [1])
    first.close(finished=False)
    assert Journal(tmp_path, {**HEADING, "seed": 2}).done == {}
    assert Journal(tmp_path, HEADING).done == {"one": [1]}


def test_a_line_cut_short_loses_only_itself(tmp_path: Path) -> None:
    first = Journal(tmp_path, HEADING)
    first.add("one", [1])
    first.add("two", [2])
    first.close(finished=False)
    for cut in range(1, 20):
        whole = first.path.read_bytes()
        first.path.write_bytes(whole[:-cut])
        again = Journal(tmp_path, HEADING)
        assert again.done == {"one": [1]}
        again.add("two", [2])
        again.close(finished=False)
    assert Journal(tmp_path, HEADING).done == {"one": [1], "two": [2]}


def test_a_finished_probe_leaves_no_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, HEADING)
    journal.add("one", [1])
    journal.close(finished=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file_is_one_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="could not be"):
        Journal(tmp_path / "file" / "below", HEADING)


def test_a_second_probe_is_told_who_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n"
        "from umsh.probe.journal import exclusive\n"
        "with exclusive(0): print('in', flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(ProbeRunningError, match=f"process {other.pid}"), exclusive(0.3):
            pass
        other.communicate("\n", timeout=60)
    with exclusive(0):
        pass


def test_the_lock_follows_no_link_that_somebody_laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "victim").write_text("kept")
    (tmp_path / f"umsh-probe-{os.getuid()}.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(RecordError), exclusive(0):
        pass
    assert (tmp_path / "victim").read_text() == "kept"


def test_a_child_that_hangs_is_ended_and_the_next_step_gets_a_new_one(child: Child) -> None:
    with pytest.raises(ChildError, match=r"did not end within 0\.5 s"):
        child.ask({"do": "hang"}, 0.5)
    assert child.ask({"do": "a"}, 60) == "a" * 40000


def test_a_child_that_dies_is_reported_with_its_last_words(child: Child) -> None:
    with pytest.raises(ChildError, match="signal 6: the driver gave up"):
        child.ask({"do": "die"}, 60)
    with pytest.raises(ChildError, match="exit code 3"):
        child.ask({"do": "leave"}, 60)
    assert child.ask({"do": "b"}, 60) == "b" * 40000


def test_a_child_that_died_after_its_answer_is_not_blamed_on_the_next_step(child: Child) -> None:
    assert child.ask({"do": "last"}, 60) == "last" * 40000
    end = time.monotonic() + 60
    while child.running:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert child.ask({"do": "b"}, 60) == "b" * 40000
    assert child.running


def test_a_new_child_opens_the_device_before_the_deadline_of_a_step_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks: list[str] = []

    class Recorded:
        running = False

        def ask(self, request: dict[str, Any], deadline_s: float) -> Any:
            self.running = True
            asks.append(request["do"])
            return msgspec.to_builtins(asked())

    probe = Probe(Settings(), lambda now: None)
    monkeypatch.setattr(probe, "_child", Recorded(), raising=False)
    (one,) = bench_steps(asked(benches=[("flag", {"rounds": 5})]), 0, True, 1, "", None)
    probe._do(one)
    probe._do(one)
    assert asks == ["facts", "bench", "bench"]


def test_a_subject_that_hangs_costs_one_deadline_and_not_one_for_each_of_its_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging:
        running, asks = True, 0

        def ask(self, request: dict[str, Any], deadline_s: float) -> Any:
            self.asks += 1
            raise ChildError("it did not end within 110 s")

    child = Hanging()
    probe = Probe(Settings(), lambda now: None)
    monkeypatch.setattr(probe, "_child", child, raising=False)
    names = ["handover", "message_passing", "store_buffering"]
    plan = asked(litmus=[(name, "svm:WA/RA", way) for way in ("cpu->gpu", "gpu->cpu") for name in names])
    records = [probe._do(one)[0] for one in verdict_steps(plan, 0, True, 7)]
    assert child.asks == 2  # one for each direction
    assert [record["verdict"] for record in records] == ["broken", "unproven", "unproven"] * 2
    assert "not run" in records[1]["reason"]
    assert "handover" in records[1]["reason"]


@pytest.mark.parametrize("quick", [True, False])
def test_a_slow_verdict_ends_by_itself_before_its_process_is_ended(quick: bool) -> None:
    (one,) = verdict_steps(asked(litmus=[("handover", "svm:WA/RA", "cpu->gpu")]), 0, quick, 1)
    assert one.deadline_s > RUN_S + DEADLINE_S


def test_typed_errors_cross_the_pipe_and_bugs_stay_bugs(child: Child) -> None:
    with pytest.raises(DeviceError) as caught:
        child.ask({"do": "typed"}, 60)
    assert caught.value.next_step == "Plug one in."
    with pytest.raises(RuntimeError, match="a bug"):
        child.ask({"do": "bug"}, 60)


def test_the_time_left_follows_the_pace_of_each_kind() -> None:
    clock = Clock()
    assert clock.left_s([step("verdict", 2.0), step("bench", 3.0)]) == 5.0
    clock.took(step("verdict", 10.0), 5.0)
    assert clock.left_s([step("verdict", 2.0), step("bench", 3.0)]) == 4.0


def test_plan_keys_are_unique_and_every_step_has_a_deadline() -> None:
    plan = asked(
        litmus=[("handover", "svm:WA/RA", "cpu->gpu"), ("handover", "svm:WA/RA", "gpu->cpu")],
        benches=[("bind", {"nbytes": 4096}), ("bind", {"nbytes": 8192}), ("flag", {"rounds": 5})],
    )
    steps = [*verdict_steps(plan, 0, True, 1), *bench_steps(plan, 0, True, 1, "", None)]
    assert len({one.key for one in steps}) == len(steps) == 5
    assert all(0 < one.expected_s < one.deadline_s for one in steps)


def test_only_kept_candidates_are_timed() -> None:
    plan = asked(mechanisms=[MechanismRecord(n, "", True) for n in ("svm.driver:WA/RA", "system.4k:WA/RA")])
    verdicts = [
        verdict("svm:WA/RA", "kept"), verdict("system:WA/RA", "broken"),
        verdict("svm", "kept", boundary="inside"),
        verdict("lock:cas@svm", "broken", boundary="inside"),
        verdict("lock:ticket@svm", "kept", boundary="inside"),
    ]  # fmt: skip
    kept = kept_subjects(plan, verdicts)
    assert kept["cpu_to_gpu"] == ["svm.driver:WA/RA"]
    assert kept["gpu_to_cpu"] == []
    assert (kept["flag"], kept["lock"]) == (["svm"], ["ticket@svm"])


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "unproven"),
        (["kept", "kept"], "kept"),
        (["kept", "absent"], "kept"),
        (["absent", "absent"], "absent"),
        (["kept", "unproven"], "unproven"),
        (["unproven", "broken", "kept"], "broken"),
    ],
)
def test_a_subject_stands_as_its_worst_test(verdicts: list[str], expected: str) -> None:
    assert standing([verdict("svm", v) for v in verdicts], "svm").verdict == expected


def test_a_verdict_whose_process_hung_is_broken_with_the_reason() -> None:
    from umsh.correctness.litmus import tests

    name = next(iter(tests()))
    (one,) = verdict_steps(asked(litmus=[(name, "svm:WA/RA", "cpu->gpu")]), 0, True, 7)
    (record,) = ended(one, "it did not end within 30 s")
    assert (record["verdict"], record["reason"], record["seed"]) == (
        "broken",
        "it did not end within 30 s",
        7,
    )


def test_twins_that_differ_count_as_noise() -> None:
    def record(samples: list[float], **parameters: Any) -> SampleRecord:
        return SampleRecord(
            "flag", "svm", "", "", {"rounds": 5, "metric": "t", **parameters}, "ns", samples, True, ""
        )

    calm = [100.0 + i for i in range(9)]
    noise = noise_of([record(calm), record(calm, twin=True)])
    assert (noise["twins"], noise["twins_differ"]) == (1, 0)
    noise = noise_of([record(calm), record([v * 2 for v in calm], twin=True)])
    assert (noise["twins"], noise["twins_differ"]) == (1, 1)
