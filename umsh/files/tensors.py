"""FileTensor: one tensor of a loaded file; NumPy, PyTorch, CuPy and JAX take it without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from umsh import dlpack
from umsh.errors import NeedError
from umsh.files.kinds import Kind
from umsh.views import Array

if TYPE_CHECKING:
    from umsh.files.header import Entry
    from umsh.region import Region


class FileTensor:
    """A tensor whose bytes both agents read; nobody writes it, so it has no turns.

    name, shape, nbytes: as in the file. kind: its element kind. region: where it lies, None when it has
    no bytes; start: its first byte there. Arrays and tensors made from it keep the memory.
    """

    __slots__ = ("kind", "name", "nbytes", "region", "shape", "start")

    def __init__(self, entry: Entry, region: Region | None, start: int) -> None:
        self.name = entry.name
        self.kind: Kind = entry.kind
        self.shape = entry.shape
        self.nbytes = entry.nbytes
        self.region = region
        self.start = start

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; NeedError for a kind that NumPy has none for and ml_dtypes is not installed."""
        return self.kind.storage if self.kind.numpy else _extended(self.kind)

    @property
    def ptr(self) -> int:
        """The address kernels use; 0 when the tensor has no bytes or the driver gives no addresses."""
        return 0 if self.region is None else int(self._of_device().ctypes.data)

    @property
    def bits(self) -> Array:
        """The CPU's read-only array of the elements' bits, of the kind's storage dtype."""
        array = self._of_cpu()
        array.setflags(write=False)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.bits.view(self.dtype)
        return np.array(array, dtype, copy=copy) if copy or dtype not in (None, array.dtype) else array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.DL_CPU, 0) if self.region is None else self.region.device.dlpack_device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule over the same bytes; loading ended before, so no stream has to wait for anything."""
        if copy:
            raise BufferError("The tensor shares memory; copy it with the consumer's own means.")
        here = self.__dlpack_device__()
        device = dl_device or here
        if device not in (here, (dlpack.DL_CPU, 0)):
            raise BufferError(f"The tensor is on DLPack device {here}, not {dl_device}.")
        if self.kind.dlpack is None:
            raise BufferError(f"DLPack has no type for {self.kind.name}.")
        dlpack.consumer_stream(device, stream)
        array = self._of_device() if device == here else self._of_cpu()
        return dlpack.export(array, device, max_version, None if self.kind.numpy else self.kind.dlpack)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.__dlpack_device__()[0] not in dlpack.CUDA_DEVICES:
            raise AttributeError("__cuda_array_interface__: this tensor is not in CUDA memory")
        if not self.kind.numpy:
            raise AttributeError(f"__cuda_array_interface__: it has no type for {self.kind.name}")
        return {**self._of_device().__array_interface__, "version": 3, "strides": None, "stream": None}

    def __repr__(self) -> str:
        return f"<umsh.FileTensor {self.name!r} {self.kind.name} {self.shape}>"

    def _of_cpu(self) -> Array:
        if self.region is None:
            return np.empty(self.shape, self.kind.storage)
        self.region._check_open()
        return self._cut(self.region._array)

    def _of_device(self) -> Array:
        """The same bytes at the device's address; described only, where the CPU cannot reach it."""
        if self.region is None:
            return np.empty(self.shape, self.kind.storage)
        self.region._check_open()
        return self._cut(self.region._device_array())

    def _cut(self, whole: Array) -> Array:
        part = whole[self.start : self.start + self.nbytes]
        return part.view(self.kind.storage).reshape(self.shape)


def _extended(kind: Kind) -> np.dtype[Any]:
    """The dtype ml_dtypes gives a kind that NumPy lacks."""
    try:
        import ml_dtypes
    except ImportError as error:
        raise NeedError(
            f"NumPy has no dtype for {kind.name}.",
            "No array was made.",
            "pip install ml_dtypes, take the raw bits (`.bits`), or use torch.from_dlpack.",
        ) from error
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, kind.torch))
    return dtype
