"""A region as umsh.h describes it, for native code that fills or reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umsh.native import ffi, lib

if TYPE_CHECKING:
    from umsh.views import Array

WRITE_CODES = {"WA": lib.UMSH_WRITE_ALONE, "WF": lib.UMSH_WRITE_FLUSH, "WBp": lib.UMSH_WRITE_BYPASS}
READ_CODES = {"RI": lib.UMSH_READ_INVALIDATE}  # every other read method needs no work on the CPU side


class NativeRegion:
    """A `umsh_region` of umsh.h; it keeps the region's memory as an array of it would.

    address: where the struct lies (int), to pass to native code as `umsh_region *`. struct: the same
    as a cffi pointer.
    """

    __slots__ = ("_memory", "address", "struct")

    def __init__(self, memory: Array, device_address: int, nbytes: int, write: str, read: str) -> None:
        self._memory = memory
        self.struct = ffi.new("umsh_region *")
        self.address = int(ffi.cast("uintptr_t", self.struct))
        write_code, read_code = WRITE_CODES[write], READ_CODES.get(read, lib.UMSH_READ_ALONE)
        lib.umsh_region_describe(
            self.struct, memory.ctypes.data, device_address, nbytes, write_code, read_code
        )
