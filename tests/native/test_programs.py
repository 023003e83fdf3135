"""The C tests, built plain, with sanitizers and for aarch64, and run."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "umsh" / "native"

# A program and the parts of umsh/native it is linked with; pages.c and files.c include others themselves.
PROGRAMS = {
    "control.c": ("control.c", "work.c", "cache.c"),
    "cache.c": ("work.c", "cache.c"),
    "pages.c": ("parallel.c",),
    "files.c": ("parallel.c",),
    "header.cpp": (),
}


@dataclass(frozen=True)
class Build:
    """One way to build and run: compilers, extra flags, and what stands before the program's name."""

    c: str
    cpp: str
    flags: tuple[str, ...]
    runner: tuple[str, ...] = ()


BUILDS = {
    "plain": Build("gcc", "g++", ("-O2",)),
    "asan+ubsan": Build("gcc", "g++", ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")),
    # The race detector of older compilers cannot live with a widely randomised address space.
    "tsan": Build("gcc", "g++", ("-O1", "-fsanitize=thread"), ("setarch", "-R")),
    "valgrind": Build("gcc", "g++", ("-O1",), ("valgrind", "-q", "--error-exitcode=99", "--leak-check=full")),
    "aarch64": Build("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", ("-O2", "-static"), ("qemu-aarch64",)),
}


# valgrind does not know PAGEMAP_SCAN, and reports the bad address that files.c passes on purpose.
RUNS = [(p, b) for p in PROGRAMS for b in BUILDS if b != "valgrind" or p not in ("pages.c", "files.c")]


@pytest.mark.parametrize(("program", "build"), RUNS)
def test_program_passes(program: str, build: str, tmp_path: Path) -> None:
    """Every check of the program holds, and neither the compiler nor a sanitizer has anything to say."""
    binary = compile_program(program, BUILDS[build], tmp_path)
    run(BUILDS[build], binary, str(tmp_path))


def test_file_reads_in_memory_file_system() -> None:
    """The file program on tmpfs, which accepts O_DIRECT without reading directly."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("no /dev/shm on this machine")
    with_memory = folder / "umsh-test-files"
    with_memory.mkdir(exist_ok=True)
    try:
        binary = compile_program("files.c", BUILDS["plain"], with_memory)
        assert "direct 0" in run(BUILDS["plain"], binary, str(with_memory))
    finally:
        shutil.rmtree(with_memory)


def compile_program(program: str, build: Build, folder: Path) -> Path:
    compiler = build.cpp if program.endswith(".cpp") else build.c
    for tool in (compiler, *build.runner[:1]):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if build.c == "gcc" and platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip(f"umsh has no cache maintenance for {platform.machine()}")
    binary = folder / program.partition(".")[0]
    options = ["-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-pthread"]
    options += [f"-I{NATIVE}", f"-I{HERE}", *([] if program.endswith(".cpp") else ["-std=gnu11"])]
    sources = (HERE / program, *(NATIVE / part for part in PROGRAMS[program]))
    done = subprocess.run(
        [compiler, *options, *build.flags, "-o", str(binary), *map(str, sources)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return binary


def run(build: Build, binary: Path, argument: str) -> str:
    done = subprocess.run([*build.runner, str(binary), argument], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
