"""`python -m casestudies`: what it lists, runs and generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA_PLANE = ("image_preprocessing", "model_loading", "output_sampling", "point_cloud")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "casestudies", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def needs(module: str, package: str) -> None:
    pytest.importorskip(module, reason=f"{package} is not installed")


def test_it_lists_every_study() -> None:
    needs("PIL", "pillow")
    listed = command()
    assert listed.returncode == 0, listed.stderr
    for name in DATA_PLANE:
        assert name in listed.stdout


def test_an_unknown_study_is_a_usage_error() -> None:
    needs("PIL", "pillow")
    assert command("no_such_study").returncode == 2


def test_a_quick_run_checks_the_result_and_writes_nothing(device: Any) -> None:
    needs("PIL", "pillow")
    before = {path: path.stat().st_mtime_ns for path in (ROOT / "casestudies").rglob("*.json")}
    done = command("point_cloud", "--quick")
    assert done.returncode == 0, done.stderr
    assert "umsh region" in done.stdout
    assert before == {path: path.stat().st_mtime_ns for path in (ROOT / "casestudies").rglob("*.json")}


def test_the_page_is_what_the_committed_results_say(tmp_path: Path) -> None:
    needs("PIL", "pillow")
    page = tmp_path / "page.md"
    script = (
        "import sys, pathlib; from casestudies.__main__ import studies;"
        "from casestudies.table import write_table; "
        "write_table({n: m.STUDY for n, m in studies().items()}, pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, str(page)], cwd=ROOT, check=True, timeout=120)
    assert page.read_text() == (ROOT / "docs" / "casestudies.md").read_text()


def test_modelled_results_are_what_the_models_say_now() -> None:
    script = (
        "import json; from dataclasses import asdict; from casestudies.modelled import run;"
        "from casestudies.study import ROOT, load; from casestudies.output_sampling.run import STUDY;"
        "made = run(STUDY);"
        "files = [ROOT / STUDY.name / 'results' / f\"{r.machine['model']}.modelled.json\" for r in made];"
        "assert made and all(asdict(load(f)) == asdict(r) for f, r in zip(files, made, strict=True))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)
