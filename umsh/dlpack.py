"""DLPack export: NumPy makes the capsule and its deleter, the device field is set to the GPU's."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

DL_CPU = 1
CUDA_DEVICES = (2, 3, 13)  # kDLCUDA, kDLCUDAHost, kDLCUDAManaged
LEGACY_STREAM = 1
# dlpack.h: DLManagedTensor starts with DLTensor {void *data; DLDevice device;}; the versioned form
# has {uint32 major, minor; void *ctx; deleter; uint64 flags;} before it.
DEVICE_OFFSET = 8
DEVICE_OFFSET_VERSIONED = 40
DTYPE_AFTER_DEVICE = 12  # DLDevice device; int32 ndim; DLDataType {uint8 code, bits; uint16 lanes}


def export(
    array: np.ndarray[Any, Any],
    device: tuple[int, int],
    max_version: tuple[int, int] | None,
    kind: tuple[int, int] | None = None,
) -> Any:
    """A fresh DLPack capsule over `array`'s address on `device`; it holds one reference to `array`.

    kind: (type code, bits) of elements NumPy has no dtype for; `array` then has their bits. The
    deleter is NumPy's: it runs once, on any thread, and takes the GIL. Raises BufferError for
    a dtype DLPack has no code for.
    """
    versioned = max_version is not None and max_version[0] >= 1 and _numpy_speaks_versions()
    capsule: Any = array.__dlpack__(max_version=max_version) if versioned else array.__dlpack__()
    if device != (DL_CPU, 0) or kind is not None:
        name = b"dltensor_versioned" if versioned else b"dltensor"
        start = _pointer()(capsule, name)
        field = start + (DEVICE_OFFSET_VERSIONED if versioned else DEVICE_OFFSET)
        ctypes.c_int32.from_address(field).value = device[0]
        ctypes.c_int32.from_address(field + 4).value = device[1]
        if kind is not None:
            ctypes.c_uint8.from_address(field + DTYPE_AFTER_DEVICE).value = kind[0]
            ctypes.c_uint8.from_address(field + DTYPE_AFTER_DEVICE + 1).value = kind[1]
    return capsule


def consumer_stream(device: tuple[int, int], stream: int | None) -> int | None:
    """The consumer's stream to order the data on, None when there is nothing to order.

    CUDA: None means the legacy default stream (1), -1 no ordering, 0 is ambiguous and refused.
    CPU: only None is allowed. Raises BufferError.
    """
    if device[0] == DL_CPU:
        if stream is not None:
            raise BufferError("A CPU-addressable DLPack view takes stream=None.")
        return None
    if device[0] in CUDA_DEVICES and stream == 0:
        raise BufferError("DLPack disallows CUDA stream 0: it is ambiguous. Use 1 or 2.")
    if device[0] in CUDA_DEVICES and stream is None:
        return LEGACY_STREAM
    return None if stream == -1 else stream


def stream_handle(stream: object) -> int | None:
    """The handle of a CUDA stream (an int, or an object with `__cuda_stream__`); None for none."""
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    return stream if isinstance(stream, int) else None


def _numpy_speaks_versions() -> bool:
    return int(np.__version__.split(".")[0]) >= 2 and int(np.__version__.split(".")[1]) >= 1


def _pointer() -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get
