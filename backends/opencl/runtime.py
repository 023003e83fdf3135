"""The OpenCL runtime: candidates with their reasons, one opened device per number, fork guard."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from umsh.backends.opencl.quirks import check_linker, ensure_caches, quirks_of
from umsh.errors import DeviceError, OutOfMemory

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice

D = TypeVar("D", bound="OpenCLDevice")

_lock = threading.Lock()
_owner_pid = 0  # the process that first used the runtime
_opened: dict[int, Any] = {}


def check_process() -> None:
    """Raise DeviceError in a forked child: the runtime's threads did not come along, it would hang."""
    if _owner_pid and _owner_pid != os.getpid():
        raise DeviceError(
            f"OpenCL was started by process {_owner_pid}; this is its forked child {os.getpid()}.",
            "The runtime's threads exist only in the parent, so nothing was done.",
            "Start workers with multiprocessing.get_context('spawn').",
        )


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Turn a failed OpenCL call into DeviceError, or OutOfMemory where the code says so."""
    import pyopencl as cl

    try:
        yield
    except cl.MemoryError as error:
        raise OutOfMemory(
            f"{what} failed: {error}.", "Nothing was left allocated.", "Use less memory."
        ) from error
    except cl.Error as error:
        raise DeviceError(
            f"{what} failed: {error}.", "The work was not done.", "Run `umsh-probe facts`."
        ) from error


def missing_fact(device: Any) -> str:
    """Why an OpenCL device cannot share memory with the CPU; "" when it can."""
    import pyopencl as cl

    fine = cl.device_svm_capabilities.FINE_GRAIN_BUFFER
    if device.version.startswith("OpenCL 1.") or not device.compiler_available:
        return f"{device.version}, compiler {'present' if device.compiler_available else 'absent'}"
    if device.svm_capabilities & fine or "cl_intel_unified_shared_memory" in device.extensions:
        return ""
    return "neither fine-grain SVM nor cl_intel_unified_shared_memory"


def candidates() -> tuple[list[Any], dict[str, str]]:
    """Usable devices, the preferred first, and the reason of every one that is not.

    GPUs come before CPUs. Raises DeviceError when pyopencl or its loader is missing.
    """
    global _owner_pid
    check_process()
    ensure_caches()
    try:
        import pyopencl as cl
    except ImportError as error:
        raise DeviceError(
            f"pyopencl cannot be imported: {error}.",
            "No OpenCL device can be used.",
            "pip install 'pyopencl[pocl]'",
        ) from error
    _owner_pid = os.getpid()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceError(
            f"The OpenCL loader found no platform (no ICD): {error}.",
            "No OpenCL device can be used.",
            "pip install 'pyopencl[pocl]', or check OCL_ICD_VENDORS and /etc/OpenCL/vendors.",
        ) from error
    usable: list[Any] = []
    reasons: dict[str, str] = {}
    for platform in platforms:
        where = f"{platform.name} {platform.version}"
        try:
            found = platform.get_devices()
        except cl.Error as error:  # DEVICE_NOT_FOUND: a platform without hardware
            reasons[where] = str(error)
            continue
        if not found:
            reasons[where] = "lists no device"
        for device in found:
            if reason := missing_fact(device):
                reasons[f"{device.name} ({where})"] = reason
            else:
                usable.append(device)
    usable.sort(key=lambda device: (not device.type & cl.device_type.GPU, quirks_of(device).rank))
    return usable, reasons


def opened(which: int, make: Callable[[int, Any], D]) -> D:
    """The device numbered `which`, made once per process.

    Raises DeviceError: no such number (every candidate's reason is told), missing linker, forked child.
    """
    check_process()
    with _lock:
        if which not in _opened:
            usable, reasons = candidates()
            if not 0 <= which < len(usable):
                told = "; ".join(f"{where}: {reason}" for where, reason in reasons.items()) or "none refused"
                raise DeviceError(
                    f"OpenCL has {len(usable)} usable device(s), number {which} was asked for ({told}).",
                    "No device was opened.",
                    "Use a lower number, or pip install 'pyopencl[pocl]'.",
                )
            check_linker(quirks_of(usable[which]))
            _opened[which] = make(which, usable[which])
        device: D = _opened[which]
        return device
