"""Read a file's ranges into memory: direct where it is not cached, with progress, cancel and bounds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from umsh import native
from umsh.errors import Cancelled, FileError

CHUNK_BYTES = 64 << 20  # between two looks at cancel; large enough to keep the disk busy
CACHED_PIECE_BYTES = 16 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
Progress = Callable[[int, int], object]


@dataclass(slots=True)
class LoadReport:
    """How bytes came in: past the page cache, bounced on the way, or out of the page cache, and why.

    nbytes_cached: of nbytes_buffered, what was in the page cache before. fallback: the file system's
    reason against direct reads, "" when there was none.
    """

    nbytes: int = 0
    nbytes_direct: int = 0
    nbytes_bounced: int = 0
    nbytes_buffered: int = 0
    nbytes_cached: int = 0
    fallback: str = ""

    def add(self, other: LoadReport) -> None:
        """Count another read in."""
        self.nbytes += other.nbytes
        self.nbytes_direct += other.nbytes_direct
        self.nbytes_bounced += other.nbytes_bounced
        self.nbytes_buffered += other.nbytes_buffered
        self.nbytes_cached += other.nbytes_cached
        self.fallback = self.fallback or other.fallback


class Source:
    """One open file, and what it looked like when its header was read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._was = self._stamp()
        status = os.fstat(self.fd)
        self.file_bytes = status.st_size
        # The kernel tells what is cached only to those who could also write the file (mincore(2)).
        self._tells = status.st_uid == os.geteuid() or os.access(path, os.W_OK)

    @cached_property
    def cached_at_first(self) -> int:
        """Bytes of the whole file in the page cache when this was first asked."""
        return self.cached_bytes(0, self.file_bytes)

    def cached_bytes(self, offset: int, nbytes: int) -> int:
        """Bytes of the range in the page cache now; 0 where the kernel does not tell us."""
        return native.file_resident(self.fd, offset, nbytes) if self._tells and nbytes else 0

    def forget(self, offset: int, nbytes: int) -> None:
        """Give the range's pages of the cache back, also one it begins within; dirty and mapped ones stay."""
        start = offset - offset % PAGE_BYTES
        os.posix_fadvise(self.fd, start, nbytes and offset + nbytes - start, os.POSIX_FADV_DONTNEED)

    def check_same(self) -> None:
        """FileError when the file was written, replaced or cut since it was opened."""
        if self._stamp() != self._was:
            raise FileError(
                f"{self.path!r} was changed while it was loaded.",
                "What was read is not to be trusted and was given back.",
                "Load it again once its writer has finished.",
            )

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stamp(self) -> tuple[int, int]:
        status = os.fstat(self.fd)
        return status.st_size, status.st_mtime_ns


class Reader:
    """Reads ranges, in several threads, and keeps count; progress and cancel are looked at between chunks.

    keep_cache: pages found in the cache stay there; else each is given back once it has been copied.
    """

    def __init__(
        self,
        total: int,
        progress: Progress | None,
        cancel: threading.Event | None,
        keep_cache: bool = True,
    ) -> None:
        self.report = LoadReport()
        self._total, self._progress, self._cancel = total, progress, cancel
        self._keep_cache = keep_cache
        self._lock = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """End the reads of other threads at their next chunk."""
        self._stopped = True

    def read(self, source: Source, offset: int, address: int, nbytes: int) -> None:
        """Bytes [offset, offset + nbytes) of the file to `address`. FileError, Cancelled."""
        end = offset + nbytes
        while offset < end:
            self._look()
            # Chunks end at multiples of their size, so that no direct read but the last has a tail.
            n = min(CHUNK_BYTES - offset % CHUNK_BYTES, end - offset)
            how = _chunk(source, offset, address, n, self._keep_cache)
            offset, address = offset + n, address + n
            with self._lock:
                self.report.add(how)
                if self._progress is not None:
                    self._progress(self.report.nbytes, self._total)
        self._look()

    def _look(self) -> None:
        if self._stopped or (self._cancel is not None and self._cancel.is_set()):
            raise Cancelled(
                f"Loading was cancelled after {self.report.nbytes} of {self._total} bytes.",
                "What was read was given back.",
                "",
            )


def _chunk(source: Source, offset: int, address: int, nbytes: int, keep_cache: bool) -> LoadReport:
    """Read one chunk the way that fits what is cached of it."""
    cached = source.cached_bytes(offset, nbytes)
    if 2 * cached > nbytes:
        _copy_cached(source, offset, address, nbytes, keep_cache)
        return LoadReport(nbytes, nbytes_buffered=nbytes, nbytes_cached=min(cached, nbytes))
    how = native.read_file(source.fd, offset, address, nbytes)
    if how.nbytes_buffered and not cached:
        source.forget(offset, nbytes)
    return LoadReport(
        nbytes, how.nbytes_direct, how.nbytes_bounced, how.nbytes_buffered, fallback=how.fallback
    )


def _copy_cached(source: Source, offset: int, address: int, nbytes: int, keep_cache: bool) -> None:
    """Copy a range that is in the page cache."""
    target = memoryview(native.ffi.buffer(native.ffi.cast("char *", address), nbytes))
    at = 0
    while at < nbytes:
        got = os.preadv(source.fd, [target[at : at + CACHED_PIECE_BYTES]], offset + at)
        if got == 0:
            source.check_same()
            raise FileError(f"{source.path!r} ended at byte {offset + at}.", "Nothing was loaded.", "")
        if not keep_cache:
            source.forget(offset + at, got)
        at += got
    if not keep_cache:
        source.forget(offset, nbytes)  # what the first try left: pages still on their way to a list
