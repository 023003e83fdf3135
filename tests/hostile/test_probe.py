"""umsh-probe under attack: interrupts, a second probe, folders that take nothing, full disks, no device."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 120
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, device: Any) -> Any:
    """Start umsh-probe with a cache folder and a temporary folder of its own."""
    (tmp_path / "tmp").mkdir()
    running: list[subprocess.Popen[str]] = []

    def run(*arguments: str, environment: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        own = {
            "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp"), "COLUMNS": "120",
            "POCL_CACHE_DIR": os.environ.get("POCL_CACHE_DIR", f"{cache}/pocl"),
        }  # fmt: skip
        code = "from umsh.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **own, **(environment or {})},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, **more,
        )  # fmt: skip
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


def journal_lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("journal-*.jsonl"))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_steps(process: subprocess.Popen[str], folder: Path, steps: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while journal_lines(folder) < steps + 1 and process.poll() is None:
        assert time.monotonic() < end, "the probe did not get that far"
        time.sleep(0.02)


def test_an_interrupted_probe_says_how_to_resume_and_loses_nothing(start: Run, tmp_path: Path) -> None:
    arguments = ("bench", "bind", "file_load", "--quick")
    process = start(*arguments)
    wait_for_steps(process, tmp_path, 3)  # of bind: the large files of file_load come next
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "run the same command again to resume" in err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("umsh-bench-*")), "large files were left behind"
    kept = journal_lines(tmp_path) - 1
    assert kept >= 3
    code, out, err = finish(start(*arguments))
    assert code == 0, err
    assert f"{kept} steps of an interrupted probe are kept" in err
    for title in ("bind: bind", "file_load: load"):
        assert title in out
    assert journal_lines(tmp_path) == 0


def children(pid: int) -> list[int]:
    """Child processes of `pid`; a bare machine has no ps."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()  # "pid (name) state parent ..."
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if int(after_name[1]) == pid:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("after_s", [0.0, 0.4, 1.0])
def test_an_interrupt_at_the_start_leaves_no_process_behind(start: Run, after_s: float) -> None:
    process = start("check", "--quick")
    # Python itself must have installed its handler; before that the system's default ends the process.
    time.sleep(0.3 + after_s)
    process.send_signal(signal.SIGINT)
    code, _, _ = finish(process)
    assert code in (130, -signal.SIGINT)
    assert children(process.pid) == []


def test_a_probe_that_is_killed_takes_its_child_with_it(start: Run, tmp_path: Path) -> None:
    process = start("check", "--quick")
    wait_for_steps(process, tmp_path, 1)
    (child,) = children(process.pid)
    process.kill()
    process.communicate()
    end = time.monotonic() + DEADLINE_S
    while (
        Path(f"/proc/{child}").exists()
        and "Z" not in Path(f"/proc/{child}/stat").read_text().split(")")[1][:3]
    ):
        assert time.monotonic() < end, "the child outlived its parent"
        time.sleep(0.05)


def test_a_second_probe_is_refused_or_waits(start: Run, tmp_path: Path) -> None:
    first = start("check", "--quick")
    wait_for_steps(first, tmp_path, 1)
    code, _, err = finish(start("bench", "verbs", "--quick"))
    assert code == 2
    assert f"process {first.pid}" in err
    assert "--wait SECONDS" in err
    waiting = start("bench", "verbs", "--quick", "--wait", "100")
    time.sleep(0.5)
    first.send_signal(signal.SIGINT)
    assert finish(first)[0] == 130
    code, out, err = finish(waiting)
    assert code == 0, err
    assert "verbs: call" in out


def test_a_folder_that_takes_nothing_is_one_typed_error(start: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = finish(start("--quick", "--output", str(tmp_path / "file" / "below")))
    assert code == 2
    assert err.count("RecordError") == 1
    assert "Traceback" not in err


def test_a_read_only_cache_folder_is_one_typed_error(start: Run, tmp_path: Path) -> None:
    # /proc refuses new folders to root as well.
    code, _, err = finish(start("--quick", environment={"XDG_CACHE_HOME": "/proc"}))
    assert code == 2
    assert "RecordError" in err
    assert "Traceback" not in err


def test_a_full_disk_keeps_what_was_written(start: Run, tmp_path: Path) -> None:
    process = start("check", "--quick")
    wait_for_steps(process, tmp_path, 1)
    written = journal_lines(tmp_path)
    # A file that may not grow is what a full disk looks like to a writer.
    (journal,) = tmp_path.rglob("journal-*.jsonl")
    now = journal.stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (now, now))
    code, _, err = finish(process)
    assert code == 2, err
    assert "RecordError" in err
    assert "Traceback" not in err
    assert journal_lines(tmp_path) >= written > 1


def test_no_linker_is_told_before_the_driver_aborts(start: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = finish(start("--quick", environment={"PATH": str(tmp_path / "empty")}))
    assert code == 3
    assert "ld" in err
    assert "Traceback" not in err
    assert out == ""


def test_an_unknown_device_is_told_with_every_reason(start: Run) -> None:
    code, out, err = finish(start("facts", "--device", "opencl:9"))
    assert code == 3
    assert "opencl" in err
    assert out == ""


def test_json_to_stdout_is_json_alone(start: Run) -> None:
    code, out, err = finish(start("bench", "verbs", "--quick", "--json", "-"))
    assert code == 0, err
    titles = [sheet["title"] for sheet in json.loads(out)["sheets"]]
    assert titles[0].startswith("verbs: call")


def test_verify_runs_the_litmus_tests_of_what_is_in_force(start: Run) -> None:
    code, out, err = finish(start("verify"))
    assert code == 0, err
    assert "kept" in out
    assert "svm:WA/RA" in out


def test_tables_keep_to_the_width_of_the_terminal(start: Run) -> None:
    code, out, err = finish(start("facts", environment={"COLUMNS": "80"}))
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80


def test_a_new_process_uses_the_choice_that_a_probe_left(start: Run, tmp_path: Path) -> None:
    profile = Path(__file__).parents[2] / "microbench" / "results" / "host" / "profile.json"
    if not profile.exists():
        pytest.skip("this checkout has no profile of platform host")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def python(code: str) -> str:
        run = [sys.executable, "-W", "ignore", "-c", code]
        return subprocess.run(
            run, env=environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    folder = python(
        "from umsh.backends import open_device; from umsh.choice import own_folder;"
        "print(own_folder(open_device('opencl:0')))"
    ).strip()
    Path(folder).mkdir(parents=True)
    shutil.copy(profile, Path(folder) / "profile.json")
    code, out, err = finish(start("choose"))
    assert code == 0, err
    assert out.splitlines()[-1] == str(Path(folder) / "choice.toml")
    explained = python("import umsh; print(umsh.explain(device='opencl:0'))")
    assert f"own probe: {folder}/choice.toml" in explained
    code, out, err = finish(start("explain"))
    assert code == 0, err
    assert "own probe" in out
