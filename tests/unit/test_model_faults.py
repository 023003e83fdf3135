"""Tests of the tests: each fault planted in the modelled machine is found by litmus tests named here."""

from __future__ import annotations

import pytest

from umsh.backends import open_device
from umsh.backends.model.faults import FAULTS
from umsh.correctness.language import Litmus
from umsh.correctness.litmus import tests as litmus_tests
from umsh.correctness.run import run_test
from umsh.correctness.subjects import ONE_WAY, subjects
from umsh.correctness.verdict import Verdict
from umsh.errors import DeviceError

N, N_FAULTY, SEED = 64, 256, 1

CATCHES = {
    "stale": [
        ("message_passing", "coherent:WA/RA"), ("bulk_message", "coherent:WA/RA"),
        ("handover", "coherent:WA/RA"), ("message_passing_control", "coherent"),
    ],
    "reorder": [
        ("message_passing", "coherent:WA/RA"), ("message_passing_control", "coherent"),
        ("store_buffering", "coherent"), ("wait_set", "coherent"),
    ],
    "torn": [("torn_32", "coherent"), ("torn_64", "coherent")],
    "lost_wakeup": [("wait_set", "coherent"), ("bulk_message", "coherent:WA/RA")],
    "nonatomic": [
        ("atomic_add", "atomic:coherent"), ("atomic_cas", "atomic:coherent"),
        ("atomic_exchange", "atomic:coherent"),
        ("mutual_exclusion", "lock:ticket@coherent"),
    ],
    "coherence_lies": [("message_passing", "coherent:WA/RA"), ("handover", "coherent:WA/RA")],
    "flush_skips_line": [("bulk_message", "cached:WF/RI"), ("bulk_handover", "cached:WF/RI")],
}  # fmt: skip
PLANTED = [(fault, test, subject) for fault, found in CATCHES.items() for test, subject in found]
WAYS = {
    "bulk_handover": ["cpu->gpu"],
    "handover": ["gpu->cpu"],
}  # the GPU's caches are emptied between kernels


def judged(fault: str, test: str, subject: str, direction: str, n: int = N) -> Verdict:
    return run_test(open_device(f"model:{fault}"), litmus_tests()[test], subject, direction, n, SEED)


def test_every_fault_is_caught_by_a_named_test() -> None:
    assert {*CATCHES, "thp_splits"} == set(FAULTS)  # page size is no matter of litmus: test_model_machines


@pytest.mark.parametrize(("fault", "test", "subject"), PLANTED, ids=["-".join(one) for one in PLANTED])
def test_a_planted_fault_is_found_and_its_absence_is_not(fault: str, test: str, subject: str) -> None:
    for direction in WAYS.get(test, ONE_WAY):
        found = judged(fault, test, subject, direction, N_FAULTY)
        hangs = (
            "waited for the other in vain" in found.reason
        )  # the fault keeps even the lock or words from working
        assert found.verdict == "broken" or hangs, f"{direction}: {found.reason}"
        clean = judged("", test, subject, direction)
        assert clean.verdict == "kept", f"{direction}: {clean.reason}"


def test_a_lock_that_never_opens_is_not_kept() -> None:
    found = judged("nonatomic", "mutual_exclusion", "lock:cas@coherent", "cpu->gpu")
    assert found.verdict in ("broken", "unproven"), found.reason


@pytest.mark.parametrize("test", litmus_tests().values(), ids=litmus_tests().keys())
def test_a_clean_coherent_memory_keeps_everything(test: Litmus) -> None:
    device = open_device("model:")
    for direction in ONE_WAY:
        for subject in subjects(device, test, direction):
            if subject.memory == "coherent" and not subject.absent:
                found = run_test(device, test, subject.name, direction, N, SEED)
                assert found.verdict == "kept", f"{subject.name} {direction}: {found.reason}"


def verdict(test: str, subject: str, direction: str = "cpu->gpu") -> str:
    return judged("", test, subject, direction).verdict


def test_incoherent_memory_needs_a_publish_and_a_refresh() -> None:
    for direction in ONE_WAY:
        assert verdict("message_passing", "cached:WF/RI", direction) == "kept"
        assert verdict("message_passing", "cached:WBp/RI", direction) == "kept"
        assert verdict("message_passing", "cached:WA/RI", direction) == "broken"
        assert verdict("message_passing", "cached:WF/RA", direction) == "broken"


def test_between_kernels_only_the_cpu_side_needs_them() -> None:
    assert verdict("handover", "cached:WF/RA", "cpu->gpu") == "kept"
    assert verdict("handover", "cached:WA/RA", "cpu->gpu") == "broken"
    assert verdict("handover", "cached:WA/RI", "gpu->cpu") == "kept"
    assert verdict("handover", "cached:WA/RA", "gpu->cpu") == "broken"


def test_weak_mutants_are_caught_where_the_protection_matters() -> None:
    found = judged("", "message_passing", "cached:WF/RI", "cpu->gpu")
    assert found.mutants["no publish"] == "caught"
    assert found.mutants["no refresh"] == "caught"
    ordered = judged("", "message_passing_control", "coherent", "gpu->cpu", N_FAULTY)
    assert ordered.mutants["relaxed store"] == "caught"


def test_faults_are_planted_together_by_name() -> None:
    assert open_device("model:torn,stale").name == "model:stale,torn"
    assert judged("torn,stale", "torn_64", "coherent", "cpu->gpu").verdict == "broken"
    assert judged("torn,stale", "handover", "coherent:WA/RA", "gpu->cpu").verdict == "broken"


def test_an_unknown_fault_is_an_error() -> None:
    with pytest.raises(DeviceError, match="gremlin"):
        open_device("model:gremlin")
