"""Profile files: what is written is read again, and what is not a profile is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from umsh import profile
from umsh.errors import RecordError
from umsh.profile import MechanismRecord, Profile, SampleRecord, VerdictRecord


def example() -> Profile:
    return Profile(
        umsh="0.1.0",
        made="2026-11-30T00:00:00Z",
        provenance="measured",
        platform="host",
        driver="opencl",
        device="made up",
        quick=True,
        seed=7,
        identity={"kernel": "6.18", "cpus": 2},
        facts={"svm": True, "bytes": 1 << 40, "share": 0.5},
        mechanisms=[MechanismRecord("svm.driver:WA/RA", "", True)],
        verdicts=[
            VerdictRecord(
                "message_passing", "ab12", "svm:WA/RA", "cpu->gpu", "inside", "kept", "", 1000, 0, 0.003,
                {"1,1": 600, "0,0": 400}, [], {"no_fence": "caught"}, 7, {"spread": 3},
            )
        ],
        samples=[
            SampleRecord("flag", "svm", "", "both", {"threads": 1}, "ns", [1.0, 2.0], True, "")
        ],
        noise={"flag": 0.1},
    )  # fmt: skip


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    profile.save(example(), path)
    assert profile.load(path) == example()


def test_equal_profiles_are_equal_bytes() -> None:
    assert profile.encode(example()) == profile.encode(example())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"format": 1', '"format": 2'),
        ('"format": 1', '"format": "one"'),
        ('"format": 1', '"format": true'),
        ('"quick": true', '"quick": true, "extra": 1'),
        ('"verdict": "kept"', '"verdict": "fine"'),
        ('"unit": "ns"', '"unit": "furlong"'),
    ],
)
def test_a_profile_of_another_form_is_refused_by_name(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "profile.json"
    text = profile.encode(example()).decode()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(RecordError, match=str(path)):
        profile.load(path)


def test_a_profile_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    whole = profile.encode(example())
    for end in range(0, len(whole) - 2, 37):
        path.write_bytes(whole[:end])
        with pytest.raises(RecordError):
            profile.load(path)
