"""The CUDA sources compile without a warning on every architecture the driver supports; no GPU needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from umsh.errors import DeviceError

ARCHITECTURES = ((7, 5), (8, 7), (9, 0), (12, 1))
WHOLE_HEADER = b"""
#include "umsh.cuh"
extern "C" __global__ void user(umsh_u32 *flag, umsh_u32 *lock, umsh_grid *grid) {
    umsh_wait_grid(flag, 1, grid, 1000, 0);
    umsh_lock_block(lock, UMSH_LOCK_PETERSON, UMSH_TAG_GPU | 1, 1000, 0);
    umsh_unlock_block(lock, UMSH_LOCK_PETERSON, UMSH_TAG_GPU | 1);
}
"""


@pytest.fixture(scope="module")
def program() -> Any:
    pytest.importorskip("cuda.bindings", reason="cuda.bindings is not installed: extra cuda12 or cuda13")
    from umsh.backends.cuda import program as module

    try:
        module.nvrtc()
    except DeviceError as error:
        pytest.skip(str(error))
    return module


@pytest.mark.parametrize("capability", ARCHITECTURES, ids=str)
@pytest.mark.parametrize("file", ["work.cu", "control.cu", "steps.cu"])
def test_kernels_compile(program: Any, file: str, capability: tuple[int, int]) -> None:
    folder = program._device_folder()
    assert program._compile(program.HERE / file, program._target(capability), folder)


def test_the_header_compiles_as_a_user_includes_it(program: Any, tmp_path: Path) -> None:
    source = tmp_path / "user.cu"
    source.write_bytes(WHOLE_HEADER)
    assert program._compile(source, "sm_90", program._device_folder())


def test_an_architecture_nvrtc_does_not_know_gets_ptx(program: Any) -> None:
    assert program._target((99, 0)).startswith("compute_")


def test_a_source_that_does_not_compile_gives_the_log(program: Any, tmp_path: Path) -> None:
    source = tmp_path / "bad.cu"
    source.write_text("__global__ void f() { nonsense; }")
    with pytest.raises(DeviceError, match="nonsense"):
        program._compile(source, "sm_90", program._device_folder())


def test_a_second_compile_comes_from_the_cache(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_cache_folder", lambda: tmp_path)
    first = program.compiled(program.HERE / "control.cu", (9, 0))
    monkeypatch.setattr(program, "_compile", lambda *_: pytest.fail("compiled again"))
    assert program.compiled(program.HERE / "control.cu", (9, 0)) == first


def test_a_cache_that_cannot_be_written_costs_nothing_else(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setattr(program, "_cache_folder", lambda: blocked / "cuda")
    assert program.compiled(program.HERE / "control.cu", (9, 0))
