"""Mappings on 4 KiB, transparent huge or hugetlb pages, with what the kernel really gave."""

from __future__ import annotations

import errno
import os
import weakref
from typing import Any

from umsh.errors import DeviceError, NeedError, OutOfMemory, UnsupportedError
from umsh.native._native import ffi, lib

KINDS = {"4k": lib.UMSH_PAGES_4K, "thp": lib.UMSH_PAGES_THP, "hugetlb": lib.UMSH_PAGES_HUGETLB}
_KIND_NAMES = {number: name for name, number in KINDS.items()}
_SOURCES = {
    lib.UMSH_VERIFIED_NOT: "",
    lib.UMSH_VERIFIED_PAGEMAP_SCAN: "pagemap_scan",
    lib.UMSH_VERIFIED_SMAPS: "smaps",
}


class Mapping:
    """Zeroed memory of whole pages; unmapped by close(), or when the object is collected.

    It does not count who uses `address`: keep the object for as long as anything does.
    """

    def __init__(self) -> None:
        self._mapping = ffi.new("umsh_mapping *")
        self._fd = ffi.new("int *", -1)
        self._free = weakref.finalize(self, _free, self._mapping, self._fd, os.getpid())
        self._free.atexit = False

    @property
    def fd(self) -> int:
        """The file descriptor of shared memory, closed with the mapping; -1 of private memory. Settable."""
        return int(self._fd[0])

    @fd.setter
    def fd(self, fd: int) -> None:
        self._fd[0] = fd

    @property
    def address(self) -> int:
        """CPU address of the first byte; 0 once closed."""
        return int(self._mapping.address)

    @property
    def nbytes(self) -> int:
        return int(self._mapping.nbytes)

    @property
    def nbytes_mapped(self) -> int:
        """nbytes rounded up to whole pages."""
        return int(self._mapping.nbytes_mapped)

    @property
    def requested(self) -> str:
        """The page kind asked for: "4k", "thp" or "hugetlb"."""
        return _KIND_NAMES[self._mapping.requested]

    @property
    def huge_bytes(self) -> int:
        """Bytes in pages larger than the base page, as last verified."""
        return int(self._mapping.huge_bytes)

    @property
    def huge_bytes_possible(self) -> int:
        """What the page kind asked for could have given: whole huge pages inside the mapping."""
        return int(self._mapping.huge_bytes_possible)

    @property
    def page_bytes(self) -> int:
        """Size of the page kind asked for, or of the base page where no huge page fits."""
        return int(self._mapping.page_bytes)

    @property
    def source(self) -> str:
        """How huge_bytes was read back: "pagemap_scan", "smaps", or "" before verify()."""
        return _SOURCES[self._mapping.verified_by]

    def verify(self) -> int:
        """Read back from the kernel which pages are huge; returns huge_bytes."""
        _check(lib.umsh_pages_verify(self._mapping), "verify", self.nbytes, self.requested)
        return self.huge_bytes

    def collapse(self, timeout_s: float = 1.0) -> int:
        """Ask the kernel to make the rest huge, for at most about timeout_s; verifies, returns huge_bytes.

        Not getting them is no error: compare huge_bytes with huge_bytes_possible.
        """
        if self.huge_bytes < self.huge_bytes_possible:
            lib.umsh_pages_collapse(self._mapping, int(timeout_s * 1e9))
        return self.huge_bytes

    def close(self) -> None:
        """Unmap, and close the file descriptor of shared memory. Idempotent; nothing in a forked child."""
        self._free()


def map_pages(nbytes: int, pages: str = "thp", prefault: bool = True, shared: bool = False) -> Mapping:
    """Map nbytes (>= 1) of zeroed memory, on `pages` ("4k", "thp", "hugetlb") where one fits, and verify.

    shared: over a file descriptor (Mapping.fd) that another process can attach; always prefaulted. What the
    kernel did not give is asked for once more and then reported by huge_bytes, never hidden.
    Raises NeedError (size or page kind), OutOfMemory, UnsupportedError (no huge pages reserved), DeviceError.
    """
    _check_kind(pages)
    if not 1 <= nbytes <= 1 << 62:
        raise NeedError(f"{nbytes} bytes were asked for.", "Nothing was mapped.", "Use 1 byte or more.")
    mapping = Mapping()
    if shared:
        result = lib.umsh_pages_map_shared(nbytes, mapping._fd, KINDS[pages], mapping._mapping)
    else:
        result = lib.umsh_pages_map(nbytes, KINDS[pages], prefault, mapping._mapping)
    _check(result, "map", nbytes, pages)
    mapping.verify()
    if prefault or shared:
        mapping.collapse()
    return mapping


def attach_pages(fd: int, nbytes: int, pages: str = "thp") -> Mapping:
    """Map the bytes of the shared mapping behind `fd` (still the caller's), made with this page kind.

    Raises DeviceError when it is gone or smaller than nbytes, NeedError for an unknown page kind.
    """
    _check_kind(pages)
    mapping = Mapping()
    result = lib.umsh_pages_attach(fd, nbytes, KINDS[pages], mapping._mapping)
    if result < 0:
        raise DeviceError(
            f"The shared memory of {nbytes} bytes cannot be attached: {os.strerror(-result)}.",
            "Nothing was mapped.",
            "Keep the region that shares it bound until the other process has attached.",
        )
    mapping.verify()
    return mapping


def _free(mapping: Any, fd: Any, owner: int) -> None:
    """A forked child inherits both, and a number that its own code may have closed and used again."""
    if os.getpid() != owner:
        return
    lib.umsh_pages_unmap(mapping)
    if fd[0] >= 0:
        os.close(fd[0])
        fd[0] = -1


def _check_kind(pages: str) -> None:
    if pages not in KINDS:
        raise NeedError(f"pages={pages!r} is not known.", "Nothing was mapped.", f"Use one of {list(KINDS)}.")


def _check(result: int, what: str, nbytes: int, pages: str) -> None:
    if result == 0:
        return
    state = f"The kernel refused to {what} {nbytes} bytes of {pages!r} pages: {os.strerror(-result)}."
    if result == -errno.ENOMEM and pages == "hugetlb":
        raise UnsupportedError(
            state,
            "Too few huge pages are reserved (/proc/sys/vm/nr_hugepages); nothing was mapped.",
            "Reserve more as root, or use pages='thp'.",
        )
    if result == -errno.ENOMEM:
        raise OutOfMemory(state, "Nothing was mapped.", "Ask for less; umsh.memory_info() says what is left.")
    raise DeviceError(state, "Nothing was mapped.", "Look up the error for mmap(2) and madvise(2).")
