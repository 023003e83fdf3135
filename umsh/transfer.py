"""Write and read: copy a whole array in and publish it, or refresh and copy it out."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from umsh.errors import NeedError
from umsh.region import TIMEOUT_S, Region, check_region
from umsh.views import Array


def write(
    region: Region,
    array: Any,
    *,
    stream: object = None,
    offset: int | None = None,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Copy `array` into the region and publish it by the write method in force.

    array: of the region's shape and dtype, contiguous or not; with `offset` (elements of the
    flattened region) of any shape that fits. Without `stream` all of it is visible to the GPU on
    return; with it, to work enqueued on that stream afterwards (contract W1-W4).
    Raises NeedError for another shape or dtype (nothing is copied), RegionBusy, TurnError, WaitTimeout.
    """
    check_region(region)
    if type(array) is not np.ndarray:
        try:
            array = np.asarray(array)
        except ValueError as error:
            raise NeedError(f"It is no array: {error}.", "Nothing was copied.", "Give one shape.") from error
    if array.dtype != region.dtype or (offset is None and array.shape != region.shape):
        raise _mismatch(region, "array", array)
    if not region._cpu_writes:
        raise region._direction_error("the CPU does not write")
    if region._inside:
        region._check_open()
        _copy_in(region, array, offset, stream)
        return
    region._begin(None)
    try:
        if region._keeper.work or region._gpu_was_last:
            region._receive(timeout_s)
        _copy_in(region, array, offset, stream)
        if stream is None and region._copies:
            region._keeper.settle(timeout_s)
    finally:
        region._end()


def read(
    region: Region, out: Array | None = None, *, stream: object = None, timeout_s: float = TIMEOUT_S
) -> Array:
    """The bytes the GPU published last, in `out` or a new array, by the read method in force.

    out: writable, of the region's shape and dtype. stream: also waits for all work enqueued on it
    so far, told of by on_gpu or not. Blocks until the data are there (contract R1-R3).
    Raises NeedError for a wrong `out` (left untouched), RegionBusy, TurnError, WaitTimeout.
    """
    check_region(region)
    if out is not None:
        if not isinstance(out, np.ndarray):
            raise NeedError(f"out is a {type(out).__name__}.", "Nothing was copied.", "Give a NumPy array.")
        if out.dtype != region.dtype or out.shape != region.shape or not out.flags.writeable:
            raise _mismatch(region, "out", out)
    if not region._gpu_writes:
        raise region._direction_error("the CPU is not the receiver")
    if region._inside:
        region._check_open()
        region._refresh(region._address, region.nbytes)
        return _copy_out(region, out)
    region._begin(None)
    try:
        if stream is not None:
            region._keeper.settle(timeout_s)
            region._gpu_done(region.device.stream(stream), timeout_s, wait=False)
        region._receive(timeout_s)
        return _copy_out(region, out)
    finally:
        region._end()


def _copy_in(region: Region, array: Array, offset: int | None, stream: object) -> None:
    if offset is None:
        target, start, nbytes = region._array, 0, region.nbytes
    else:
        target = _part(region, array, offset)
        start, nbytes = offset * region.dtype.itemsize, array.nbytes
    if region._copy_in is None:
        np.copyto(target, array)
        region._publish_range(start, nbytes, stream)
    elif nbytes:
        source = np.ascontiguousarray(array)
        region._copy_in(region._address + start, source.ctypes.data, nbytes)


def _part(region: Region, array: Array, offset: int) -> Array:
    """The region's elements [offset, offset + array.size) in the array's shape; NeedError outside."""
    size = region._array.size
    if not isinstance(offset, SupportsIndex) or not 0 <= offset <= size - array.size:
        raise NeedError(
            f"{array.size} elements from {offset!r} on were to be written; the region has {size}.",
            "Nothing was copied.",
            "Stay inside the region.",
        )
    return region._array.reshape(-1)[offset : offset + array.size].reshape(array.shape)


def _copy_out(region: Region, out: Array | None) -> Array:
    if out is None:
        return region._array.copy()
    np.copyto(out, region._array)
    return out


def _mismatch(region: Region, what: str, array: Array) -> NeedError:
    state = f"{what} has shape {array.shape} and dtype {array.dtype}"
    if not array.flags.writeable and what == "out":
        state += ", read-only"
    return NeedError(
        f"{state}; the region has {region.shape} and {region.dtype}.",
        "Nothing was copied.",
        "Convert it first: array.astype(region.dtype).reshape(region.shape).",
    )
