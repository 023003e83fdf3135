"""The command line: help, usage, exit codes, JSON with the content of the tables, files where they belong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from umsh import choice as choices
from umsh import cli
from umsh import profile as profiles
from umsh.errors import DeviceError
from umsh.mechanism import MemoryKind
from umsh.probe import commands, generate
from umsh.probe.asked import Asked
from umsh.probe.force import Force

KINDS = (
    MemoryKind("pinned", ("driver",), "WB", "UC", "two-way", True, True, note="mapped host memory"),
    MemoryKind("managed", ("driver",), "WB", "WB", "none", True, False, "concurrentManagedAccess is 0"),
)
METHODS = {"cpu": {"WA": "", "RB": "a CPU has no bypassing load"}, "gpu": {"WA": ""}}
SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a finished probe of the hand-made machine; nothing is opened or measured."""
    folder = tmp_path / "probe"
    folder.mkdir()
    shutil.copy(SNAPSHOTS / "profile.json", folder / "profile.json")
    profile = profiles.load(folder / "profile.json")
    asked = Asked(
        umsh="0", folder=str(folder), provenance="measured", platform=profile.platform, driver=profile.driver,
        device=profile.device, identity=profile.identity, facts=profile.facts, mechanisms=profile.mechanisms,
        kinds=list(KINDS), methods=METHODS,
        litmus=[], benches=[],
    )  # fmt: skip
    choice = generate.generate(profile, "profile.json", "0" * 64)
    force = Force(
        facts=[("choice", "own probe")], choice=choice, data=[("pinned:WA/RA", "cpu->gpu", "kernel")],
        control=["pinned"],
    )  # fmt: skip
    monkeypatch.setattr(commands, "ask", lambda settings, child: asked)
    monkeypatch.setattr(commands, "force", lambda settings: force)
    return folder


def test_help_names_every_subcommand_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    for word in ("facts", "check", "bench", "choose", "explain", "verify", "report", "--quick", "--json"):
        assert word in text
    assert "4 too noisy" in " ".join(text.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such"],
        ["no-such"],
        ["--seed", "-1"],
        ["--wait", "soon"],
        ["bench", "no-such-benchmark"],
        ["choose", "--quick"],
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_is_wrong(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Error" in said.err


def test_an_unknown_benchmark_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["bench", "flags"])
    assert "zero_copy" in capsys.readouterr().err


def test_choose_generates_the_choice_beside_the_profile(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["choose"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(finished / "choice.toml")
    assert choices.load(finished / "choice.toml").platform == "handmade"


def test_report_writes_one_file_and_names_it_last(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", "--output", str(tmp_path / "out")]) == 0
    written = tmp_path / "out" / "report.html"
    assert capsys.readouterr().out.splitlines()[-1] == str(written)
    assert "Hand-made GPU" in written.read_text()


def test_json_has_the_content_of_the_tables(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    titles = [sheet["title"] for sheet in found["sheets"]]
    assert titles == ["In force", "Memory kinds", "Choice"]
    (row,) = [r for r in found["sheets"][1]["rows"] if r["memory"] == "managed"]
    assert row["evidence"] == "concurrentManagedAccess is 0"


@pytest.mark.parametrize("columns", [80, 120])
def test_facts_name_memory_kinds_and_methods_with_the_missing_fact(
    columns: int, finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.run(["facts"]) == 0
    said = capsys.readouterr()
    words = " ".join(said.out.split())
    assert "mapped host memory" in words
    assert "absent: concurrentManagedAccess is 0" in words
    assert "absent: a CPU has no bypassing load" in words
    assert max(map(len, said.out.splitlines())) <= columns
    assert "platform  handmade" in said.err


def test_facts_in_json_have_a_row_a_memory_kind_and_a_row_a_method(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["facts", "--json", "-"]) == 0
    sheets = {sheet["title"]: sheet["rows"] for sheet in json.loads(capsys.readouterr().out)["sheets"]}
    assert [row["memory"] for row in sheets["Memory kinds"]] == ["pinned", "managed"]
    assert sheets["Memory kinds"][0]["CPU/GPU policy"] == "WB / UC"
    assert [(row["agent"], row["method"]) for row in sheets["Methods"]] == [
        ("cpu", "WA"), ("cpu", "RB"), ("gpu", "WA"),
    ]  # fmt: skip


def test_no_device_is_exit_code_3_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(settings: Any, child: Any) -> Asked:
        raise DeviceError("No device could be opened: cuda: no driver.", "", "Install one.")

    monkeypatch.setattr(commands, "ask", none)
    assert cli.run(["facts"]) == 3
    assert "cuda: no driver" in capsys.readouterr().err


def test_an_interrupt_says_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(settings: Any, child: Any) -> Asked:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "ask", interrupted)
    assert cli.run(["facts"]) == 130
    assert "again to resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "empty"), (b"{", "truncated"), (b'{"format": 2}', "format 2"), (b"\xff\xfe", "")],
)  # fmt: skip
@pytest.mark.parametrize("command", ["choose", "report"])
def test_a_profile_that_cannot_be_read_is_one_typed_error(
    content: bytes, says: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    assert cli.run([command, str(path)]) == 2
    said = capsys.readouterr().err
    assert "RecordError" in said
    assert says in said
    assert list(tmp_path.iterdir()) == [path]
