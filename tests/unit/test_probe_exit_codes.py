"""What a probe leaves behind and which exit code it ends with: stands, broken, nothing, noisy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from umsh import choice as choices
from umsh import cli
from umsh import profile as profiles
from umsh.errors import RecordError
from umsh.probe import commands
from umsh.probe.asked import Asked
from umsh.probe.force import Force
from umsh.probe.run import Probe, Settings
from umsh.profile import Profile

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
NOISE = {"twins": 10.0, "twins_differ": 9.0, "spread": 0.2}


@pytest.fixture(autouse=True)
def own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The lock of one probe a user lies in the temporary folder: a real probe may be running."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))


@pytest.fixture
def profile() -> Profile:
    return profiles.load(SNAPSHOTS / "profile.json")


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Let the next probe measure exactly this profile; nothing is opened."""

    def let(profile: Profile, data: list[tuple[str, str, str]] | None = None, control: Any = ()) -> Path:
        asked = Asked(
            umsh="0", folder=str(tmp_path), provenance="measured", platform="handmade", driver="cuda",
            device=profile.device, identity={}, facts={}, kinds=[], methods={},
            mechanisms=profile.mechanisms,
            litmus=[], benches=[],
        )  # fmt: skip
        force = Force(facts=[], choice=None, data=data or [], control=list(control))
        monkeypatch.setattr("umsh.probe.run.ask", lambda settings, child: asked)
        monkeypatch.setattr(Probe, "run", lambda self: profile)
        monkeypatch.setattr(Probe, "verify", lambda self, force: profile.verdicts)
        monkeypatch.setattr(commands, "force", lambda settings: force)
        return tmp_path

    return let


def test_a_finished_probe_leaves_profile_and_choice_and_names_the_choice_last(
    probed: Any, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = probed(profile)
    assert cli.run(["--quick"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["choice.toml", "profile.json"]
    assert profiles.load(folder / "profile.json") == profile
    assert choices.load(folder / "choice.toml").data
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "choice.toml")


def test_a_noisy_machine_keeps_the_old_choice_and_the_new_samples(
    probed: Any, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = probed(replace(profile, noise=NOISE))
    (folder / "choice.toml").write_text("the old choice")
    assert cli.run([]) == 4
    assert (folder / "choice.toml").read_text() == "the old choice"
    assert profiles.load(folder / "profile.json").samples
    assert "9 of 10 groups" in capsys.readouterr().err


def test_something_broken_in_force_is_exit_code_1_with_its_test(
    probed: Any, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    probed(profile, control=["lock:cas@pinned"])
    assert cli.run([]) == 1
    assert "lock:cas@pinned" in capsys.readouterr().err
    assert cli.run(["check"]) == 1
    assert cli.run(["verify"]) == 1


def test_noise_does_not_hide_what_is_broken_in_force(
    probed: Any, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = probed(replace(profile, noise=NOISE), control=["lock:cas@pinned"])
    (folder / "choice.toml").write_text("the old choice")
    assert cli.run([]) == 1
    assert (folder / "choice.toml").read_text() == "the old choice"
    told = capsys.readouterr().err
    assert "BROKEN in force: lock:cas@pinned" in told
    assert "what was in force stays" not in told


def test_a_broken_candidate_that_is_not_in_force_is_a_result_not_a_failure(
    probed: Any, profile: Profile
) -> None:
    probed(profile, data=[("pinned:WA/RA", "cpu->gpu", "kernel")], control=["lock:peterson@pinned"])
    assert [cli.run([]), cli.run(["check"]), cli.run(["verify"])] == [0, 0, 0]


def test_a_device_on_which_everything_is_waived_is_exit_code_3(
    probed: Any, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    waived = [replace(r, samples=[], note="WAIVED: no such memory") for r in profile.samples]
    folder = probed(replace(profile, samples=waived))
    assert cli.run([]) == 3
    assert "no such memory" in capsys.readouterr().err
    assert not (folder / "choice.toml").exists()
    assert cli.run(["bench"]) == 3


def test_a_probe_into_a_folder_of_its_own_tells_how_to_use_the_choice(
    probed: Any, profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probed(profile)
    out = tmp_path / "elsewhere"
    assert cli.run(["--output", str(out)]) == 0
    assert f"UMSH_CHOICE={out / 'choice.toml'}" in capsys.readouterr().err
    assert not (tmp_path / "choice.toml").exists()


def test_a_choice_that_cannot_be_written_leaves_the_old_one(profile: Profile, tmp_path: Path) -> None:
    probe = Probe(Settings(), lambda now: None)
    probe.folder = tmp_path / "file"
    probe.folder.write_text("")
    with pytest.raises(RecordError):
        probe.write(profile)
    assert not probe.finished
