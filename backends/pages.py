"""CPU pages of every real driver: 4 KB, THP or hugetlb, private or shared through a memfd."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from umsh import native
from umsh.errors import DeviceError, UnsupportedError
from umsh.mechanism import Backing


class Pages:
    """One mapping of ours, prefaulted and verified; unmapped by free() or when dropped.

    kind: "4k", "thp" or "hugetlb". shared: over a memfd that share() can lend to other processes.
    Raises what umsh.native.map_pages raises: OutOfMemory, UnsupportedError, DeviceError.
    """

    def __init__(self, nbytes: int, kind: str, shared: bool = False) -> None:
        self._own(native.map_pages(nbytes, kind, shared=shared), kind)

    @classmethod
    def attach(cls, handle: Mapping[str, Any]) -> Pages:
        """Map what share() of another process described.

        The memfd is reached as /proc/<pid>/fd/<n>, which works for any process of the same user and
        PID namespace, however it was started. Raises DeviceError when the owner or its memory is gone.
        """
        try:
            fd = os.open(f"/proc/{handle['pid']}/fd/{handle['fd']}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise _gone(handle, str(error)) from error
        try:
            if os.fstat(fd).st_ino != handle["inode"]:
                raise _gone(handle, "that number now belongs to another file")
            mapping = native.attach_pages(fd, handle["nbytes"], handle["pages"])
        except BaseException:
            os.close(fd)
            raise
        mapping.fd = fd
        pages = cls.__new__(cls)
        pages._own(mapping, handle["pages"])
        return pages

    def _own(self, mapping: native.Mapping, kind: str) -> None:
        self.nbytes = mapping.nbytes
        self.address = mapping.address
        self._fd = mapping.fd
        self._free = weakref.finalize(self, mapping.close)
        self._free.atexit = False
        self.backing = Backing(kind, mapping.huge_bytes, mapping.nbytes, mapping.page_bytes, mapping.source)

    def share(self) -> dict[str, Any]:
        """The picklable handle that attach() takes; UnsupportedError for private pages."""
        if self._fd < 0:
            raise UnsupportedError(
                "These pages are private to the process.",
                "No handle was made.",
                "Bind the region with shared=True.",
            )
        return {
            "pid": os.getpid(),
            "fd": self._fd,
            "inode": os.fstat(self._fd).st_ino,
            "nbytes": self.nbytes,
            "pages": self.backing.requested,
        }

    def free(self) -> None:
        """Unmap. Idempotent."""
        self._free()


def view(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes at an address as an array that owns nothing."""
    return np.frombuffer(native.ffi.buffer(native.ffi.cast("char *", address), nbytes), dtype=np.uint8)


def not_writable(address: int, nbytes: int) -> str:
    """Why [address, address + nbytes) cannot be shared, as the kernel says; "" when it is all mapped rw."""
    at, end = address, address + nbytes
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            span, mode, _, _, _, *path = line.split(maxsplit=5)
            low, high = (int(bound, 16) for bound in span.split("-"))
            if high <= at:
                continue
            if low > at:
                break
            if not mode.startswith("rw"):
                return f"{at:#x} is mapped {mode!r}" + (f" from {path[0].strip()}" if path else "")
            at = high
            if at >= end:
                return ""
    return f"nothing is mapped at {at:#x}"


def _gone(handle: Mapping[str, Any], reason: str) -> DeviceError:
    return DeviceError(
        f"Shared memory {handle['fd']} of process {handle['pid']} cannot be reached: {reason}.",
        "Nothing was mapped.",
        "Keep the owner's region bound while others attach, as the same user.",
    )
