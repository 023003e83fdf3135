"""cuda.bindings, loaded on first use; every failed driver call becomes a typed error."""

from __future__ import annotations

import functools
import os
from typing import Any

from umsh.errors import DeviceError, OutOfMemory, UmshError, UnsupportedError

# CUresult codes after which the context is lost: every later call of the process fails as well.
LOST = {
    46: "the device became unavailable",
    214: "the device found an uncorrectable memory error",
    220: "an NVLink error occurred",
    700: "a kernel read or wrote an address that is not mapped",
    702: "the driver's own time limit stopped a kernel",
    710: "a kernel failed an assertion",
    714: "a kernel overran its stack",
    715: "a kernel met an illegal instruction",
    716: "a kernel used a misaligned address",
    717: "a kernel used an address of the wrong space",
    718: "a kernel jumped to an invalid address",
    719: "a kernel ended abnormally",
    721: "a kernel was launched out of bounds of its cluster",
    999: "the driver failed in a way it could not name",
}
OUT_OF_MEMORY = 2
NOT_READY = 600
UNSUPPORTED = (800, 801)  # NOT_PERMITTED, NOT_SUPPORTED
NO_DEVICE = 100
DRIVER_VERSION_MIN = 12000  # cuda.bindings 12; below it the attributes asked here are missing too

_opened_in = 0  # the process that ran cuInit; 0 before


@functools.cache
def driver() -> Any:
    """The module cuda.bindings.driver. DeviceError when cuda-python is not installed."""
    try:
        from cuda.bindings import driver as module
    except ImportError as error:
        raise DeviceError(
            f"cuda-python is not installed ({error}).",
            "CUDA devices cannot be reached.",
            "pip install 'umsh[cuda13]' for a driver of CUDA 13, or 'umsh[cuda12]' for an older one.",
        ) from error
    return module


def initialise() -> int:
    """cuInit; returns how many devices are visible (>= 1). DeviceError says what is missing."""
    global _opened_in
    check_process()
    native = driver()
    try:
        (code,) = native.cuInit(0)
    except RuntimeError as error:  # cuda.pathfinder found no library, or one too old to list functions
        raise DeviceError(
            f"libcuda.so.1, the NVIDIA driver library, cannot be loaded ({error}).",
            "There is no CUDA device here.",
            "Install the NVIDIA driver; in a container, start it with the NVIDIA runtime.",
        ) from error
    if int(code) == NO_DEVICE:
        raise _no_device()
    check((code,), "cuInit")
    (version,) = check(native.cuDriverGetVersion(), "cuDriverGetVersion")
    if version < DRIVER_VERSION_MIN:
        raise DeviceError(
            f"The NVIDIA driver supports CUDA {version // 1000}.{version % 1000 // 10}.",
            "umsh needs a driver of CUDA 12.0 or newer; no device was opened.",
            "Update the NVIDIA driver (525 or newer).",
        )
    (count,) = check(native.cuDeviceGetCount(), "cuDeviceGetCount")
    if count == 0:
        raise _no_device()
    _opened_in = os.getpid()
    return int(count)


def check_process() -> None:
    """DeviceError in a process forked after CUDA was initialised: the driver cannot be used there."""
    if _opened_in and _opened_in != os.getpid():
        raise DeviceError(
            f"This process was forked from {_opened_in}, which had initialised CUDA.",
            "CUDA cannot be used here; the parent's regions are untouched.",
            "Start processes with multiprocessing's 'spawn' method and open the device there.",
        )


def forked() -> bool:
    """Whether this process inherited CUDA from its parent: nothing may be freed here."""
    return _opened_in != os.getpid()


def check(result: tuple[Any, ...], doing: str) -> tuple[Any, ...]:
    """The values of a driver call, or its error: OutOfMemory, UnsupportedError or DeviceError."""
    code = int(result[0])
    if code:
        raise error_of(code, doing)
    return result[1:]


def error_of(code: int, doing: str) -> UmshError:
    """The typed error of one CUresult code."""
    told = f"{doing} gave {name_of(code)} ({code})"
    if code == OUT_OF_MEMORY:
        return OutOfMemory(f"{told}.", "Nothing was allocated.", "Free memory or ask for less.")
    if code in UNSUPPORTED:
        return UnsupportedError(
            f"{told}.", "Nothing was changed.", "`umsh-probe facts` lists what this device has."
        )
    if code in LOST:
        return DeviceError(
            f"{told}: {LOST[code]}.",
            "The CUDA context of this process is lost; memory the device wrote last is not valid.",
            "Start a new process; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows the kernel at fault.",
        )
    return DeviceError(f"{told}.", "Nothing was changed.", "Check the arguments named above.")


def name_of(code: int) -> str:
    """The driver's name of a result code, such as CUDA_ERROR_INVALID_VALUE."""
    try:
        return str(driver().CUresult(code).name)
    except ValueError:  # a code newer than the installed cuda.bindings
        return "CUDA_ERROR"


def _no_device() -> DeviceError:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f" CUDA_VISIBLE_DEVICES is {visible!r}."
    return DeviceError(
        f"The NVIDIA driver shows no device.{hidden}",
        "No CUDA device was opened.",
        "Unset CUDA_VISIBLE_DEVICES or name a device that `nvidia-smi -L` lists.",
    )
