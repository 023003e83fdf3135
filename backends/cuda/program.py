"""Kernels compiled by NVRTC for the device's own architecture, kept in the user's cache folder."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from umsh.backends.cuda.calls import check, driver
from umsh.errors import DeviceError

HERE = Path(__file__).parent
# NVRTC has no C library headers; this is all that the shared sources include.
STDINT = b"""
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef int int32_t; typedef long long int64_t;
"""
OPTIONS = ("--std=c++17",)


class Program:
    """The loaded kernels of one .cu file of this folder."""

    def __init__(self, file: str, capability: tuple[int, int]) -> None:
        image = compiled(HERE / file, capability)
        (self._module,) = check(driver().cuModuleLoadData(image), f"cuModuleLoadData({file})")
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The CUfunction of a kernel; the same object each time."""
        if name not in self._functions:
            (found,) = check(
                driver().cuModuleGetFunction(self._module, name.encode()), f"cuModuleGetFunction({name})"
            )
            self._functions[name] = found
        return self._functions[name]


def compiled(path: Path, capability: tuple[int, int]) -> bytes:
    """Machine code of one source file; cached by source, headers, options and compiler version."""
    headers = _device_folder()
    target = _target(capability)
    version = "{}.{}".format(*_nvrtc_check(nvrtc().nvrtcVersion(), "nvrtcVersion"))
    digest = hashlib.sha256()
    for part in (path, *sorted(headers.glob("*.cuh")), *sorted(headers.glob("*.h"))):
        digest.update(part.read_bytes())
    digest.update("\0".join((version, target, *OPTIONS)).encode())
    cached = _cache_folder() / f"{path.stem}-{digest.hexdigest()[:32]}.bin"
    try:
        return cached.read_bytes()
    except OSError:  # not there yet, or a folder that cannot be read: compiling always works
        pass
    image = _compile(path, target, headers)
    _keep(cached, image)
    return image


@functools.cache
def nvrtc() -> Any:
    """The module cuda.bindings.nvrtc. DeviceError when it or the compiler library is missing."""
    try:
        from cuda.bindings import nvrtc as module

        _nvrtc_check(module.nvrtcVersion(), "nvrtcVersion")
    except (ImportError, RuntimeError) as error:  # RuntimeError: cuda.pathfinder did not find the library
        raise DeviceError(
            f"NVRTC, the CUDA kernel compiler, cannot be loaded ({error}).",
            "umsh's kernels cannot be compiled; no device was opened.",
            "Install the CUDA toolkit, or pip install nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12.",
        ) from error
    return module


def _compile(path: Path, target: str, headers: Path) -> bytes:
    rtc = nvrtc()
    source, name = path.read_bytes(), path.name.encode()
    (program,) = _nvrtc_check(
        rtc.nvrtcCreateProgram(source, name, 1, [STDINT], [b"stdint.h"]), "nvrtcCreateProgram"
    )
    options = [each.encode() for each in (f"--gpu-architecture={target}", f"-I{headers}", *OPTIONS)]
    (code,) = rtc.nvrtcCompileProgram(program, len(options), options)
    if int(code):
        (size,) = _nvrtc_check(rtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
        log = b" " * size
        _nvrtc_check(rtc.nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog")
        raise DeviceError(
            f"NVRTC refused {path.name} for {target}:\n{log.decode(errors='replace').strip(chr(0))}",
            "The device cannot be used.",
            "Report it with this log; CUDA 12.0 or newer is supported.",
        )
    what = "CUBIN" if target.startswith("sm_") else "PTX"
    (size,) = _nvrtc_check(getattr(rtc, f"nvrtcGet{what}Size")(program), f"nvrtcGet{what}Size")
    image: bytes = b" " * size
    _nvrtc_check(getattr(rtc, f"nvrtcGet{what}")(program, image), f"nvrtcGet{what}")
    _nvrtc_check(rtc.nvrtcDestroyProgram(program), "nvrtcDestroyProgram")
    return image


def _target(capability: tuple[int, int]) -> str:
    """Machine code for an architecture this NVRTC knows, else PTX of its newest for the driver to finish."""
    rtc = nvrtc()
    (count,) = _nvrtc_check(rtc.nvrtcGetNumSupportedArchs(), "nvrtcGetNumSupportedArchs")
    (known,) = _nvrtc_check(rtc.nvrtcGetSupportedArchs(), "nvrtcGetSupportedArchs")
    known = known[:count] if isinstance(known, list) else [known]
    arch = capability[0] * 10 + capability[1]
    if arch in known:
        return f"sm_{arch}"
    return f"compute_{max((each for each in known if each < arch), default=min(known))}"


def _nvrtc_check(result: tuple[Any, ...], doing: str) -> tuple[Any, ...]:
    if int(result[0]):
        raise DeviceError(
            f"{doing} gave NVRTC error {int(result[0])}.", "Nothing was compiled.", "Check the CUDA toolkit."
        )
    return result[1:]


def _device_folder() -> Path:
    import umsh.device

    return Path(umsh.device.__path__[0])


def _cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("umsh")) / "cuda"


def _keep(path: Path, image: bytes) -> None:
    """Write atomically. A cache that cannot be written costs a compilation next time and nothing else."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(image)
        os.replace(name, path)
    except OSError:
        pass
