"""The runtime library: a program of the runtime API over the software device, in its process and remotely."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "cudart" / "runtime_calls.cpp"


@pytest.fixture(scope="module")
def runtime(client_library: Path) -> Path:
    path = client_library.parent / "libcudart.so.13"
    if not path.exists():
        pytest.skip("the runtime library is not built: no libcudart.so.13")
    return path


@pytest.fixture(scope="module")
def program(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cudart") / "runtime_calls"
    subprocess.run(["g++", "-std=c++17", "-Wall", str(PROGRAM), "-o", str(out), str(runtime)], check=True)
    return out


def passed(program: Path, libraries: str, **more: str) -> str:
    environment = os.environ | {"LD_LIBRARY_PATH": libraries} | more
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_the_runtime_works_over_any_driver_library(program: Path, runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(runtime.parent / "libumsh-software.so")
    said = passed(program, f"{tmp_path}:{runtime.parent}")
    assert said.count("cudaImportExternalMemory is not supported") == 1


@pytest.mark.parametrize("mode", ["naive", "sr", "dgsf", "full"])
def test_the_runtime_works_on_a_remote_device(program: Path, runtime: Path, software: Any, mode: str) -> None:
    server = f"127.0.0.1:{software.port}"
    passed(program, str(runtime.parent), UMSH_SERVER=server, UMSH_REMOTE_MODE=mode)


def test_symbols_carry_the_version_that_programs_ask_for(runtime: Path) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", runtime], capture_output=True, text=True, check=True
    )
    names = listed.stdout.split()[2::3]
    assert "cudaMalloc@@libcudart.so.13" in names
    assert all(n.startswith(("cuda", "__cuda", "libcudart.so.13")) for n in names)
