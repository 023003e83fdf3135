"""The CUDA driver against a fake libcuda.so.1, each suite in a child process that loads it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "cuda_fake"
SUITES = sorted(FOLDER.glob("suite_*.py"))
TIMEOUT_S = 120


@pytest.fixture(scope="session")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder holding the fake as libcuda.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH to build the fake libcuda.so.1")
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        pytest.skip("cuda.bindings is not installed: extra cuda12 or cuda13")
    folder = tmp_path_factory.mktemp("fake-cuda")
    command = [compiler, "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
    command += ["-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, *map(str, sorted(FOLDER.glob("*.c"))), "-ldl"], check=True, timeout=TIMEOUT_S)
    return folder


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.stem)
def test_suite(suite: Path, library_folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library_folder)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)]
    command += [f"--confcutdir={FOLDER}", f"--basetemp={tmp_path / 'child'}"]
    ended = subprocess.run(
        command, env=environment, cwd=FOLDER.parents[1], timeout=TIMEOUT_S, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
