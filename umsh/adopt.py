"""Adopt: existing memory (arrays, maps, shared memory, CPU tensors) as the memory of a region."""

from __future__ import annotations

from typing import Any

import numpy as np

from umsh.errors import AdoptError
from umsh.lifetime import overlap
from umsh.views import Array


def as_array(memory: Any) -> Array:
    """`memory` as a writable, contiguous, non-empty array over the very same bytes.

    Takes NumPy arrays, objects with the buffer protocol (mmap, bytearray, memoryview), with a `buf`
    (SharedMemory) or with `__array__` over CPU memory (PyTorch). AdoptError with the reason otherwise.
    """
    array = _shared(getattr(memory, "buf", memory))
    if not array.flags.writeable:
        raise _refused("it is read-only")
    if not array.flags.c_contiguous:
        raise _refused("it is not contiguous", "Adopt the whole array, or bind new memory and write into it.")
    if not array.flags.aligned:
        raise _refused(f"it is not aligned for {array.dtype}")
    if array.nbytes == 0:
        raise _refused("it has zero bytes")
    if array.dtype.hasobject:
        raise _refused("it holds Python objects")
    return array


def check_free(array: Array) -> None:
    """AdoptError when any byte of `array` belongs to a bound region; the caller holds lifetime.guard."""
    if taken := overlap(array.ctypes.data, array.nbytes):
        raise _refused(f"bytes {taken[0]:#x} to {taken[1]:#x} belong to a bound region")


def _shared(memory: Any) -> Array:
    if isinstance(memory, np.ndarray):
        return memory
    if hasattr(memory, "__array__"):
        try:
            one, other = np.asarray(memory), np.asarray(memory)
        except (TypeError, ValueError, RuntimeError) as error:
            raise _refused(f"it gives no NumPy array ({error})") from error
        if one.ctypes.data != other.ctypes.data:
            raise _refused("its NumPy form is a copy")
        return one
    try:
        return np.frombuffer(memory, dtype=np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise _refused(f"it does not share its bytes ({error})") from error


def _refused(reason: str, next_step: str = "") -> AdoptError:
    return AdoptError(
        f"The memory does not qualify as a region: {reason}.",
        "Nothing was bound; the memory is as it was.",
        next_step or "Bind new memory and umsh.write into it.",
    )
