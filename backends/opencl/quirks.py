"""What particular OpenCL runtimes do differently, asked or known; the only place that names one."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umsh.errors import DeviceError, FallbackWarning

POCL = "Portable Computing Language"


@dataclass(frozen=True, slots=True)
class Quirks:
    """How one device must be treated.

    build_options: compiler options beside -cl-std. linker: program the runtime needs on PATH, or "".
    groups_max: work-groups that run at the same time; 0 where the device does not tell.
    items_progress: work-items of one group make progress beside one that polls.
    system_note: what is known of plain pages passed by address when they are not advertised;
        "" when they must not be tried.
    rank: order among devices of one type; lower comes first.
    """

    build_options: tuple[str, ...]
    linker: str
    groups_max: int
    items_progress: bool
    system_note: str
    rank: int


def quirks_of(device: Any) -> Quirks:
    """The quirks of a pyopencl device, by its platform's name and its type."""
    import pyopencl as cl

    is_cpu = bool(device.type & cl.device_type.CPU)
    if device.platform.name == POCL:
        # Its -cl-std=CL3.0 leaves the scope undeclared although every scope is the same on a CPU.
        # It runs one group per thread, and the items of a group as a loop: a polling item blocks it.
        threads = os.environ.get("POCL_MAX_PTHREAD_COUNT", "")
        return Quirks(
            build_options=("-D__opencl_c_atomic_scope_all_devices=1",),
            linker="ld",
            groups_max=int(threads) if threads.isdigit() else device.max_compute_units,
            items_progress=False,
            system_note="works, not advertised" if is_cpu else "",
            rank=0,
        )
    if is_cpu:  # Intel's runtime: one co-resident group was seen, whatever its settings
        return Quirks((), "", 1, False, "works, not advertised", 1)
    return Quirks((), "", 0, True, "", 0)


def check_linker(quirks: Quirks) -> None:
    """Raise DeviceError before a build that would abort this process (PoCL without `ld`)."""
    if quirks.linker and shutil.which(quirks.linker) is None:
        raise DeviceError(
            f"The OpenCL runtime links kernels with {quirks.linker!r}, which is not on PATH.",
            "It would abort this process at the first kernel, so the device was not opened.",
            "Install binutils (apt-get install binutils) or put its folder on PATH.",
        )


def ensure_caches() -> None:
    """Keep read-only and full cache folders from breaking OpenCL; called before its first use.

    PoCL lists no device, and says nothing, when it cannot write its kernel cache: it is given a temporary
    folder, with a warning. pyopencl cannot launch a kernel: it is told to keep no cache. DeviceError when
    nothing can be written.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if _refusal(home):
        os.environ["PYOPENCL_NO_CACHE"] = "1"
    folder = Path(os.environ.get("POCL_CACHE_DIR") or home / "pocl")
    refused = _refusal(folder)
    if not refused:
        return
    try:
        other = tempfile.mkdtemp(prefix="umsh-pocl-")
    except OSError as error:
        raise DeviceError(
            f"Neither {folder} ({refused}) nor a temporary folder ({error}) can be written.",
            "PoCL cannot keep compiled kernels and would list no device.",
            "Set POCL_CACHE_DIR to a writable folder.",
        ) from error
    atexit.register(_remove, other, os.getpid())
    os.environ["POCL_CACHE_DIR"] = other
    warnings.warn(
        FallbackWarning(
            f"PoCL's kernel cache {folder} cannot be written ({refused}). Every process compiles kernels "
            "anew, in a temporary folder. Set POCL_CACHE_DIR to a writable folder."
        ),
        stacklevel=2,
    )


def _remove(folder: str, pid: int) -> None:
    """At exit of the process that made it, not of its forked children."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _refusal(folder: Path) -> str:
    """Why no file can be made and written in `folder`; "" when one can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return str(error)
    return ""
