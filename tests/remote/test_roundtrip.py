"""Every generated call in memory: arguments arrive, outputs return, damaged payloads never crash."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from umsh.remote.codegen import roundtrip

NATIVE = Path(__file__).parents[2] / "umsh" / "remote" / "native"
PROGRAM = Path(__file__).parent / "programs" / "roundtrip"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
FLAGS = ("-std=c++17", "-O0", "-g1", "-Wall", "-Wextra", *SANITIZE, f"-I{PROGRAM}", f"-I{NATIVE}")


def compile_all(sources: list[Path], out: Path) -> Path:
    def one(source: Path) -> Path:
        made = out / f"{source.parent.name}_{source.stem}.o"
        subprocess.run(["g++", *FLAGS, "-c", source, "-o", made], check=True)
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(one, sources))
    program = out / "roundtrip"
    subprocess.run(["g++", *SANITIZE, *objects, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roundtrip")
    for name, content in roundtrip.files().items():
        (folder / name).write_text(content)
    halves = [*NATIVE.glob("generated/client_*.cpp"), *NATIVE.glob("generated/serve_*.cpp")]
    shared = [
        NATIVE / "generated/dispatch.cpp",
        NATIVE / "generated/structs.cpp",
        NATIVE / "server/structs.cpp",
    ]
    return compile_all([*folder.glob("*.cpp"), *halves, *shared, PROGRAM / "main.cpp"], folder)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_generated_call_round_trips_and_survives_damage(program: Path, seed: int) -> None:
    done = subprocess.run(
        [program, "60", str(seed)], capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert int(done.stdout.split()[0]) >= 600
