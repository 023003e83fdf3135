"""Streaming: a file larger than memory through a ring of regions, read ahead while the GPU consumes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from umsh.errors import NeedError, WaitTimeout
from umsh.files.header import Entry, Header
from umsh.files.load import open_file
from umsh.files.plan import Part, plan
from umsh.files.reading import Progress, Reader
from umsh.files.tensors import FileTensor
from umsh.files.weights import bind_bytes, check_budget, fill
from umsh.region import TIMEOUT_S, Region

PIECE_BYTES = 64 << 20
DEPTH = 3  # one consumed, one full, one being read
POLL_S = 0.1


class Piece(Mapping[str, FileTensor]):
    """What one region of the ring holds now: whole tensors by name. Valid until the next piece is asked for.

    region: for kernels, `with piece.region.on_gpu(stream=s) as g`. Of a raw file the one tensor is named
    by its number.
    """

    def __init__(self, region: Region, tensors: Mapping[str, FileTensor]) -> None:
        self.region = region
        self._tensors = tensors

    def __getitem__(self, name: str) -> FileTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class stream_file:  # noqa: N801  (used like a function: for piece in stream_file(path))
    """Iterate over a file in pieces; `depth` regions in all, so a slow consumer holds the reader back.

    path, format, device, progress: as load_file's. piece_bytes: bytes of tensors in one piece, unless a
    single tensor is larger. budget: bytes the ring may take. A region is filled again only after the work
    recorded on it, and it must not be held: an array of an old piece makes the next step raise RegionBusy.
    timeout_s bounds every wait for the reader and for the GPU.
    Raises what load_file raises, at the step that meets it; WaitTimeout.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        piece_bytes: int = PIECE_BYTES,
        depth: int = DEPTH,
        budget: int | None = None,
        *,
        device: int | str = 0,
        format: str | None = None,
        progress: Progress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if depth < 2 or piece_bytes < 1:
            raise NeedError(
                f"depth={depth}, piece_bytes={piece_bytes}.", "Nothing was bound.", "Use at least 2 and 1."
            )
        self._source, header = open_file(Path(path), format)
        self._regions: list[Region] = []
        self._timeout_s = timeout_s
        self._stop = threading.Event()
        self._free: Queue[Region] = Queue(depth)
        self._full: Queue[Any] = Queue(depth + 1)
        try:
            parts = plan(_entries(header, piece_bytes), header.data_start, piece_bytes)
            depth = min(depth, max(len(parts), 1))
            nbytes = max((part.nbytes for part in parts), default=1)
            check_budget(depth * nbytes, budget, f"{depth} regions of the ring")
            for _ in range(depth):
                region = bind_bytes(nbytes, device)
                self._regions.append(region)
                self._free.put(region)
        except BaseException:
            self._free_all()
            raise
        total = sum(entry.nbytes for entry in header.entries)
        reader = Reader(total, progress, self._stop)
        self._thread = threading.Thread(target=_read_ahead, args=(self, parts, reader), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Piece]:
        try:
            while (got := self._next()) is not None:
                piece = got
                yield piece
                self._free.put(piece.region)
                piece._tensors = {}
        finally:
            self.close()

    def close(self) -> None:
        """Stop reading ahead and give the ring back; also done at the end of the iteration. Idempotent."""
        self._stop.set()
        self._thread.join(self._timeout_s)
        self._free_all()

    def __enter__(self) -> stream_file:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> Piece | None:
        try:
            got = self._full.get(timeout=self._timeout_s)
        except Empty as error:
            raise WaitTimeout(
                f"No piece was read within {self._timeout_s} s.", "The stream ends here.", "Raise timeout_s."
            ) from error
        if isinstance(got, BaseException):
            raise got
        return None if got is None else Piece(*got)

    def _free_all(self) -> None:
        self._source.close()
        self._regions.clear()  # an array of a piece may live: the last one frees its region


def _read_ahead(ring: stream_file, parts: list[Part], reader: Reader) -> None:
    """The reader's thread: fill free regions in file order; what goes wrong is told to the consumer."""
    try:
        for part in parts:
            region = _take(ring)
            if region is None:
                return
            ring._full.put((region, fill(ring._source, part, region, reader, ring._timeout_s)))
        ring._source.check_same()
        ring._full.put(None)
    except BaseException as error:
        ring._full.put(error)


def _take(ring: stream_file) -> Region | None:
    """A free region; None when the consumer has stopped. Its own pace is what holds us back."""
    while not ring._stop.is_set():
        try:
            return ring._free.get(timeout=POLL_S)
        except Empty:
            continue
    return None


def _entries(header: Header, piece_bytes: int) -> list[Entry]:
    """The file's tensors; of a raw file, numbered slices."""
    if header.format != "raw":
        return list(header.entries)
    whole = header.entries[0]
    return [
        Entry(str(number), whole.kind, (n,), offset, n)
        for number, offset in enumerate(range(0, whole.nbytes, piece_bytes))
        for n in [min(piece_bytes, whole.nbytes - offset)]
    ]
