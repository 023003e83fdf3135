"""run_test: reproducible from its seed, absent with a fact, and always at an end."""

from __future__ import annotations

from typing import Any

import pytest

from umsh.backends import open_device
from umsh.backends.driver import Device
from umsh.correctness import run
from umsh.correctness.force import force_of
from umsh.correctness.language import Litmus, Mutant, load, store
from umsh.correctness.litmus import tests as litmus_tests
from umsh.correctness.run import run_test
from umsh.correctness.subjects import subject_of, subjects
from umsh.errors import WaitTimeout

N = 64


@pytest.fixture
def model() -> Device:
    return open_device("model:")


def test_the_seed_decides_everything_on_a_model() -> None:
    def outcomes(seed: int) -> dict[str, Any]:
        found = run_test(
            open_device("model:"), litmus_tests()["message_passing"], "coherent:WA/RA", "cpu->gpu", N, seed
        )
        return found.to_dict()

    assert outcomes(3) == outcomes(3)
    assert outcomes(3)["outcomes"] != outcomes(4)["outcomes"]


def test_a_result_carries_its_evidence(model: Device) -> None:
    test = litmus_tests()["coherence"]
    found = run_test(model, test, "coherent", "gpu->cpu", N, 7)
    assert (found.test, found.test_hash, found.seed, found.direction) == (
        "coherence",
        test.digest,
        7,
        "gpu->cpu",
    )
    assert found.n == sum(found.outcomes.values()) >= N
    assert found.bound == 3 / found.n
    assert set(found.mutants) == set(test.mutants)
    assert found.settings["offset_nbytes"] % 8 == 0


def test_an_unknown_subject_is_absent(model: Device) -> None:
    found = run_test(model, litmus_tests()["coherence"], "moon", "cpu->gpu", N, 1)
    assert (found.verdict, found.n) == ("absent", 0)
    assert "moon" in found.reason


def test_an_absent_method_names_agent_and_fact(model: Device) -> None:
    found = run_test(model, litmus_tests()["message_passing"], "coherent:WA/RB", "gpu->cpu", N, 1)
    assert found.verdict == "absent"
    assert "cpu RB" in found.reason


def test_a_round_trip_needs_the_methods_of_both_agents(model: Device) -> None:
    there = litmus_tests()["handover_back"]
    assert "cpu RB" in subject_of(model, there, "cpu->gpu", "coherent:WA/RB").absent
    assert subject_of(model, litmus_tests()["handover"], "cpu->gpu", "coherent:WA/RB").absent == ""


def test_data_subjects_are_every_pair_of_methods(model: Device) -> None:
    names = {s.name for s in subjects(model, litmus_tests()["message_passing"], "cpu->gpu") if not s.absent}
    assert names == {f"{m}:{w}/{r}" for m in ("coherent", "cached") for w in ("WA", "WF", "WBp")
                     for r in ("RA", "RI", "RB")}  # fmt: skip


def test_without_safe_memory_nothing_is_tried(model: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [kind for kind in model.memory_kinds() if not kind.inside]
    monkeypatch.setattr(model, "memory_kinds", lambda: tuple(kinds))
    found = run_test(model, litmus_tests()["coherence"], "cached", "cpu->gpu", N, 1)
    assert found.verdict == "absent"
    assert "rendezvous" in found.reason


def test_an_agent_that_never_ends_is_reported_not_awaited(
    model: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never:
        def result(self, timeout_s: float) -> int:
            raise WaitTimeout("The kernel is still running.")

    monkeypatch.setattr(model.gpu, "steps", lambda run: Never())
    found = run_test(model, litmus_tests()["coherence"], "coherent", "cpu->gpu", N, 1)
    assert found.verdict == "unproven"
    assert "did not end" in found.reason


def test_roles_that_wait_in_vain_end_the_run(model: Device) -> None:
    deaf = Litmus(
        "S2", "inside", "control", [[load("x", "r", "acquire")], [store("y", 1)]], ["r=5"], ["r=4"],
        {"same": Mutant([[load("x", "r")], [store("y", 1)]])}, name="deaf",
    )  # fmt: skip
    found = run_test(model, deaf, "coherent", "cpu->gpu", 16, 1)
    assert found.verdict == "unproven"
    assert found.n == run.STRETCH * 16
    assert found.ordinary_missing == ["r=4"]


def test_time_is_bounded_for_a_test_and_its_mutants_together(
    model: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_S", 0.0)
    found = run_test(model, litmus_tests()["load_buffering"], "coherent", "cpu->gpu", 100_000, 1)
    assert found.verdict == "unproven"
    assert found.n <= run.CHUNK_FIRST


def test_safe_defaults_are_in_force_before_a_probe(model: Device) -> None:
    force = force_of(model)
    assert force.holds(litmus_tests()["message_passing"], "coherent:WA/RA", "gpu->cpu")
    assert not force.holds(litmus_tests()["message_passing"], "cached:WF/RI", "gpu->cpu")
    assert force.holds(litmus_tests()["wait_set"], "coherent", "cpu->gpu")
