"""Benchmark definitions and their measuring: every one verifies its data; waived, twinned, interleaved."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import umsh.microbench.measure as measuring
from umsh.backends import open_device
from umsh.errors import OutOfMemory
from umsh.microbench.catalogue import benchmarks
from umsh.microbench.definition import Benchmark, Rig, Sample
from umsh.microbench.measure import QUICK, Effort, measure

EXPECTED = {
    "bind", "contention", "cpu_to_gpu", "file_load", "file_to_gpu", "flag", "gpu_to_cpu", "lock", "page_step",
    "random_reads", "verbs", "zero_copy",
}  # fmt: skip
POINTS = {
    "file_load": {"nbytes": 1 << 20}, "file_to_gpu": {"nbytes": 1 << 20},
    "zero_copy": {"nbytes": 1 << 20, "fresh": False}, "random_reads": {"nbytes": 1 << 20, "accesses": 64},
    "verbs": {"calls": 20}, "flag": {"rounds": 50}, "lock": {"rounds": 50}, "contention": {"rounds": 3},
    "cpu_to_gpu": {"nbytes": 1 << 16}, "gpu_to_cpu": {"nbytes": 1 << 16},
    "bind": {"nbytes": 1 << 16}, "page_step": {"nbytes": 1 << 16},
}  # fmt: skip


class Steps:
    """A made-up device: its clock is moved by the runs."""

    provenance = "modelled"

    def __init__(self) -> None:
        self.now = 0
        self.ran: list[str] = []

    def clock_ns(self) -> int:
        return self.now


def made_up(costs: Mapping[str, int], device: Steps, **more: Any) -> Benchmark:
    def run(rig: Rig, subject: str, parameters: Any) -> Sample:
        device.ran.append(subject)
        if costs[subject] < 0:
            raise OutOfMemory("Too large for this machine.", "Nothing was allocated.", "")
        device.now += costs[subject]
        return Sample({"time": float(costs[subject])}, subject != "wrong")

    plain: dict[str, Any] = {
        "key": "made up", "prose": "", "units": {"time": "ns"}, "parameters": lambda device, quick: [{}],
        "subjects": lambda device, parameters: dict.fromkeys(costs, ""), "run": run,
    }  # fmt: skip
    return Benchmark(**{**plain, **more})


def records(benchmark: Benchmark, device: Steps, effort: Effort = QUICK, kept: Any = None) -> list[Any]:
    """Measured while seconds pass only as the made-up runs say."""
    with Rig(device) as rig, pytest.MonkeyPatch.context() as patch:  # type: ignore[arg-type]
        patch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: device.now / 1e9))
        return measure(rig, benchmark, {"nbytes": 8}, effort, seed=1, kept=kept)


def test_the_catalogue_is_the_folder() -> None:
    assert set(benchmarks()) == EXPECTED
    for key, definition in benchmarks().items():
        assert definition.key == key
        assert definition.prose.endswith(".")
        assert definition.units


@pytest.mark.parametrize("key", sorted(EXPECTED))
def test_every_benchmark_runs_small_and_verifies_its_data(key: str, device: Any) -> None:
    definition = benchmarks()[key]
    if missing := definition.applies(device):
        pytest.skip(missing)
    parameters = {**definition.parameters(device, True)[0], **POINTS[key]}
    subjects = [s for s, missing in definition.subjects(device, parameters).items() if not missing]
    assert subjects
    with Rig(device) as rig:
        for subject in subjects:
            if "hugetlb" in subject:  # reserved by an administrator, or refused by name
                continue
            sample = definition.run(rig, subject, parameters)
            assert sample.verified, subject
            assert set(sample.values) <= set(definition.units)
            assert all(value >= 0 for value in sample.values.values())


def test_candidates_are_interleaved_in_every_round() -> None:
    device = Steps()
    got = records(made_up({"a": 10**7, "b": 10**7, "c": 10**7}, device), device)
    assert {r.subject: len(r.samples) for r in got} == {"a": 11, "b": 11, "c": 11}
    rounds = [device.ran[i : i + 3] for i in range(0, len(device.ran), 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1  # the order changes


def test_rounds_follow_the_budget_but_suffice_for_the_u_test() -> None:
    device = Steps()
    slow = records(made_up({"a": 10**9, "b": 10**9}, device), device)
    assert {len(r.samples) for r in slow} == {QUICK.rounds_min}


def test_a_group_that_takes_too_long_is_waived_with_the_time_it_needs() -> None:
    device = Steps()
    (one,) = records(made_up({"a": 10**12}, device), device)
    assert one.samples == []
    assert "one round takes 1000.0 s" in one.note


def test_one_candidate_of_a_ranked_group_is_measured_twice() -> None:
    device = Steps()
    got = records(made_up({"a": 10**6, "b": 10**6}, device, ranks=True), device)
    assert [(r.subject, r.parameters.get("twin", False)) for r in got] == [
        ("a", False),
        ("b", False),
        ("a", True),
    ]


def test_what_does_not_fit_the_machine_is_waived_with_the_reason_and_the_rest_is_measured() -> None:
    device = Steps()
    got = {r.subject: r for r in records(made_up({"a": 10**6, "big": -1}, device), device)}
    assert got["big"].note == "WAIVED: Too large for this machine."
    assert got["a"].samples


def test_candidates_without_a_kept_verdict_are_not_timed_but_baselines_are() -> None:
    device = Steps()
    benchmark = made_up({"a": 10**6, "b": 10**6, "copy.x": 10**6}, device, baselines=("copy.",))
    got = {r.subject: r for r in records(benchmark, device, kept=["a"])}
    assert got["a"].samples
    assert got["copy.x"].samples
    assert got["copy.x"].baseline_of == "made up"
    assert got["b"].note == "WAIVED: its verdict is not kept"
    assert "b" not in device.ran


def test_absent_candidates_share_one_row_for_each_missing_fact() -> None:
    device = Steps()
    missing = {"a": "", "b": "no fact 1", "c": "no fact 1", "d": "no fact 2"}
    benchmark = made_up({"a": 1}, device, subjects=lambda device, parameters: missing)
    notes = sorted(r.note for r in records(benchmark, device) if r.note)
    assert notes == ["WAIVED: no fact 1 (and 1 others)", "WAIVED: no fact 2"]


def test_wrong_data_is_recorded_as_such() -> None:
    device = Steps()
    got = {r.subject: r for r in records(made_up({"a": 10**6, "wrong": 10**6}, device), device)}
    assert (got["a"].verified, got["wrong"].verified) == (True, False)


def test_a_benchmark_that_does_not_apply_is_one_waived_row() -> None:
    device = Steps()
    (one,) = records(made_up({"a": 1}, device, applies=lambda device: "no such thing"), device)
    assert one.note == "WAIVED: no such thing"


@pytest.mark.parametrize("key", ["bind", "contention", "cpu_to_gpu", "flag", "gpu_to_cpu"])
def test_a_modelled_device_runs_the_same_definitions_on_its_own_clock(key: str) -> None:
    modelled = open_device("model")
    definition = benchmarks()[key]
    parameters = {**definition.parameters(modelled, True)[0], **POINTS[key]}
    parameters["nbytes"] = 4096
    got = measure(Rig(modelled), definition, parameters, Effort(0.01, 3, 3, 60.0), seed=1)
    first = next(iter(definition.units))
    timed = [r for r in got if r.samples and r.parameters["metric"] == first]
    assert any(r.verified for r in timed)
    again = measure(Rig(modelled), definition, parameters, Effort(0.01, 3, 3, 60.0), seed=1)
    assert [r.subject for r in again] == [r.subject for r in got]


def test_what_needs_an_operating_system_is_waived_on_a_modelled_device() -> None:
    missing = {k for k, definition in benchmarks().items() if definition.applies(open_device("model"))}
    assert missing == {"file_load", "file_to_gpu", "page_step", "verbs", "zero_copy"}
