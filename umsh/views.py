"""Arrays and GPU views lent out for one turn, counted while they live and closed when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from umsh import dlpack
from umsh.errors import TurnError

if TYPE_CHECKING:
    from umsh.backends.driver import Memory
    from umsh.lifetime import Keeper

Array = np.ndarray[Any, np.dtype[Any]]
# What Python's own machinery asks of an object that the user does not touch.
STILL_READABLE = frozenset({"__class__", "__doc__", "__del__"})


def _given_back(*_: object, **__: object) -> Any:
    raise TurnError(
        "This array or view was given back when its block ended.",
        "The region may be with the other agent now.",
        "Use it inside the `with` block only, or copy it there.",
    )


class RegionArray(np.ndarray[Any, np.dtype[Any]]):
    """The array of one CPU turn. Results of arithmetic on it are plain arrays."""

    def __array_wrap__(self, array: Array, context: Any = None, return_scalar: bool = False) -> Any:
        if array is self:
            return self
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain


class ClosedArray(RegionArray):
    """A RegionArray whose block has ended: any use raises TurnError."""

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name) if name in STILL_READABLE else _given_back()


# Operators look methods up on the type, past __getattribute__; so each is replaced.
CLOSED_METHODS = """
getitem setitem len iter contains repr str bool int float complex index format eq ne lt le gt ge
array array_ufunc array_function array_wrap buffer dlpack dlpack_device copy deepcopy reduce reduce_ex
"""
for _name in CLOSED_METHODS.split():
    setattr(ClosedArray, f"__{_name}__", _given_back)


class GpuView:
    """What a GPU kernel or library gets of a region: pointer, kernel argument, DLPack.

    ptr: device address (int), 0 where the driver has only an object. arg: what the driver's own
    kernel launch takes for a pointer. shape, dtype, nbytes: as the region's.
    """

    __slots__ = (
        "__weakref__",
        "_array",
        "_device",
        "_order",
        "_stream",
        "arg",
        "dtype",
        "nbytes",
        "ptr",
        "shape",
    )

    def __init__(self, memory: Memory, array: Array, device: tuple[int, int], stream: object,
                 order: Callable[[object], None]) -> None:  # fmt: skip
        self._array = array
        self._device = device
        self._stream = stream
        self._order = order
        self.ptr = memory.device_address
        self.arg = memory.kernel_arg
        self.shape = array.shape
        self.dtype = array.dtype
        self.nbytes = array.nbytes

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule over the same bytes, ordered on the consumer's `stream` by DLPack's rules.

        BufferError where the request cannot be met without a copy.
        """
        if not self.ptr:
            raise BufferError("This memory has no device address; it can only be passed as `arg`.")
        if dl_device not in (None, self._device):
            raise BufferError(f"The view is on DLPack device {self._device}, not {dl_device}.")
        if copy:
            raise BufferError("The view shares memory; copy it with the consumer's own means.")
        consumer = dlpack.consumer_stream(self._device, stream)
        if consumer is not None:
            self._order(consumer)
        return dlpack.export(self._array, self._device, max_version)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._device[0] not in dlpack.CUDA_DEVICES:
            raise AttributeError("__cuda_array_interface__: this view is not in CUDA memory")
        interface: dict[str, Any] = dict(self._array.__array_interface__)
        interface.update(version=3, strides=None, stream=dlpack.stream_handle(self._stream))
        return interface


class ClosedGpuView(GpuView):
    """A GpuView whose block has ended: any use raises TurnError."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name) if name in STILL_READABLE else _given_back()


def window(keeper: Keeper, address: int) -> Array:
    """All bytes of the keeper's memory at `address` as uint8; holds the keeper.

    For device memory the CPU cannot reach it is only ever described, never read.
    """
    return np.asarray(Window(keeper, address))


class Window:
    """The bytes of a keeper's memory at an address, as NumPy's array interface; keeps the keeper."""

    def __init__(self, keeper: Keeper, address: int) -> None:
        self.keeper = keeper
        self.__array_interface__ = {
            "shape": (keeper.memory.nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
