"""The verbs: bind, unbind, attach, memory_info and explain; the others are re-exported in __init__."""

from __future__ import annotations

import mmap
import operator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from umsh import adopt, lifetime
from umsh.errors import AdoptError, FallbackWarning, NeedError, UmshError, UnsupportedError
from umsh.handle import Handle
from umsh.machine import MemoryInfo
from umsh.need import Need, nbytes_of
from umsh.region import TIMEOUT_S, Region, check_region

if TYPE_CHECKING:
    from umsh.backends.driver import Device, Memory
    from umsh.explanation import Explanation
    from umsh.mechanism import Mechanism
    from umsh.resolve import Resolved


def bind(
    shape: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    *,
    direction: str = "both",
    source: str = "cpu",
    boundary: str = "kernel",
    passes: int = 1,
    device: int | str = 0,
    mechanism: str = "auto",
    memory: Any = None,
    shared: bool = False,
    choice: str | Path | None = None,
) -> Region:
    """Bind shared memory for a need; the mechanism is resolved here, once (contract B1-B5).

    shape, dtype: as NumPy's; with `memory` they default to its own. direction: who produces for
    whom ("cpu->gpu", "gpu->cpu", "both"). source: where the data come from ("cpu", "file",
    "network", "gpu"). boundary: "kernel" when hand-over happens between kernels, "inside" while one
    runs. passes: how often the receiver reads the data. device: a number, or "driver:number".
    mechanism: "auto", or a name that forces one. memory: existing memory to adopt. shared: other
    processes may attach. choice: a choice file to use instead of the one in force.

    Raises NeedError, UnsupportedError (with the missing fact), OutOfMemory, AdoptError, DeviceError,
    RecordError (an explicit choice file that cannot be used).
    """
    from umsh.backends import open_device
    from umsh.resolve import resolve_data

    if not isinstance(shared, bool) or not isinstance(mechanism, str):
        raise NeedError(
            f"shared={shared!r}, mechanism={mechanism!r} were given.",
            "Nothing was bound.",
            "shared is True or False, mechanism a name.",
        )
    adopted = None if memory is None else adopt.as_array(memory)
    if adopted is not None and shared:
        raise AdoptError("Adopted memory cannot be shared with other processes.", "Nothing was bound.", "")
    extents, kind = _form(shape, dtype, adopted)
    need = Need(direction, source, boundary, nbytes_of(extents, kind.itemsize), passes)
    opened = open_device(device)
    resolved = resolve_data(opened, need, choice, mechanism)
    with lifetime.guard if adopted is not None else nullcontext():
        if adopted is not None:
            adopt.check_free(adopted)
        got, chosen = _memory(opened, resolved, need, shared, adopted)
        region = Region(opened, got, extents, kind, need, chosen, resolved, adopted)
    _warn_of_small_pages(got)
    return region


def unbind(region: Region, timeout_s: float = TIMEOUT_S) -> None:
    """Give the region's memory back, after the GPU's recorded work (contract B6).

    Raises RegionBusy while arrays, views or words of it live, TurnError when already unbound,
    WaitTimeout; in each case nothing is freed.
    """
    check_region(region)
    region._unbind(timeout_s)


def attach(handle: Handle) -> Region:
    """The region another process shared, under the same mechanism (contract P1-P3).

    Raises DeviceError when its owner is gone, UnsupportedError when this driver cannot map it.
    """
    from umsh.backends import open_device
    from umsh.resolve import Resolved, in_force

    if not isinstance(handle, Handle):
        raise NeedError(
            f"{type(handle).__name__} is no handle.", "Nothing was mapped.", "Use region.share()."
        )
    opened = open_device(handle.device)
    got = opened.attach(handle.memory)
    resolved = Resolved(in_force(opened), "the process that shared it", (handle.mechanism,))
    return Region(opened, got, handle.shape, handle.dtype, handle.need, handle.mechanism, resolved)


def memory_info(device: int | str = 0) -> MemoryInfo:
    """Bytes that new regions can still take, bytes that this machine has, and the figures' source."""
    from umsh.backends import open_device

    return MemoryInfo(*open_device(device).memory_info())


def explain(what: Any = None, device: int | str = 0) -> Explanation:
    """Why a region, flag or lock got its mechanism; of None, which choice is in force on `device`.

    str() gives a table, to_dict() the same content.
    """
    from umsh.explanation import explain as explained

    return explained(what, device)


def get_include() -> str:
    """The folder of umsh.h, umsh.clh and umsh.cuh, for a compiler's -I."""
    from umsh.device import INCLUDE

    return str(INCLUDE)


def _form(
    shape: int | tuple[int, ...] | None, dtype: Any, adopted: np.ndarray[Any, Any] | None
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype asked for, those of adopted memory where not said. NeedError, AdoptError."""
    if adopted is None and (shape is None or dtype is None):
        raise NeedError("bind needs a shape and a dtype.", "Nothing was bound.", "Give both, or memory=.")
    try:
        kind = np.dtype(dtype) if dtype is not None or adopted is None else adopted.dtype
    except (TypeError, ValueError) as error:
        raise NeedError(
            f"dtype={dtype!r} is not known: {error}.", "Nothing was bound.", "Use a NumPy dtype."
        ) from error
    if kind.subdtype is not None:
        raise NeedError(
            f"dtype {kind} is an array of its own.", "Nothing was bound.", "Put its extents into the shape."
        )
    if kind.hasobject:
        raise NeedError(f"dtype {kind} holds Python objects.", "Nothing was bound.", "Use plain data.")
    if shape is None and adopted is not None:
        extents = adopted.shape if kind == adopted.dtype else (adopted.nbytes // max(kind.itemsize, 1),)
    else:
        extents = _extents(shape)
    nbytes = nbytes_of(extents, kind.itemsize)
    if adopted is not None and nbytes != adopted.nbytes:
        raise AdoptError(
            f"The memory has {adopted.nbytes} bytes; shape {extents} of {kind} has {nbytes}.",
            "Nothing was bound.",
            "Give the memory's own shape and dtype, or neither.",
        )
    return extents, kind


def _extents(shape: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    except TypeError as error:
        raise NeedError(
            f"shape={shape!r} is not a shape: {error}.", "Nothing was bound.", "Use integers."
        ) from error


def _memory(
    device: Device, resolved: Resolved, need: Need, shared: bool, adopted: np.ndarray[Any, Any] | None
) -> tuple[Memory, Mechanism]:
    """Memory by the best candidate; by the next ones only where one cannot be shared or adopted at all."""
    refusals: list[UmshError] = []
    for mechanism in resolved.candidates:
        try:
            if adopted is not None:
                address = adopted.ctypes.data
                return device.adopt(mechanism.memory, address, adopted.nbytes, adopted), mechanism
            if shared and mechanism.memory == "copy":
                raise UnsupportedError("'copy' is two memories; other processes would see only one.")
            return device.allocate(mechanism.memory, need.nbytes, mechanism.pages, shared), mechanism
        except (AdoptError, UnsupportedError) as error:
            if len(resolved.candidates) == 1 or not (shared or adopted is not None):
                raise
            refusals.append(error)
    reasons = " ".join(f"{m.memory}: {e.state}" for m, e in zip(resolved.candidates, refusals, strict=True))
    error_type = AdoptError if adopted is not None else UnsupportedError
    raise error_type(
        f"No memory here serves this. {reasons}",
        "Nothing was bound.",
        "Run umsh-probe to prove more kinds, or force one with mechanism=.",
    )


def _warn_of_small_pages(memory: Memory) -> None:
    """Say so when large pages were asked for and the kernel gave fewer than the size allows."""
    from umsh.resolve import warn_once

    backing = memory.backing
    large = backing.page_bytes > mmap.PAGESIZE
    possible = memory.nbytes - memory.nbytes % backing.page_bytes if large else 0
    if backing.requested in ("thp", "hugetlb") and backing.huge_bytes < possible:
        warn_once(
            FallbackWarning(
                f"{backing.requested!r} pages were asked for; {backing.huge_bytes} of {memory.nbytes} B "
                "have them. The region works on smaller pages. "
                "See /sys/kernel/mm/transparent_hugepage and free memory."
            )
        )
