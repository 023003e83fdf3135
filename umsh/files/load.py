"""load_file: weight files into regions, once, with no copy left in the page cache."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from umsh.errors import FileError, NeedError, OutOfMemory
from umsh.files import gguf, safetensors
from umsh.files.header import Entry, Header, raw_header
from umsh.files.plan import REGION_BYTES_MAX, Part, nbytes_of, plan
from umsh.files.reading import Progress, Reader, Source
from umsh.files.shards import files_of
from umsh.files.weights import Digests, Weights, check_budget
from umsh.machine import group_limits, read_meminfo, usable_memory

CACHED_REGION_BYTES = 32 << 20
READERS = 2  # threads: one's last pieces overlap with the other's first, so the disk is never idle
AHEAD_MAX = 4  # regions bound and not yet read in full
FORMATS = ("safetensors", "gguf", "raw")
Opened = tuple[Source, Header, list[Entry]]


def load_file(
    path: str | os.PathLike[str],
    tensors: Iterable[str] | None = None,
    lazy: bool = False,
    budget: int | None = None,
    *,
    device: int | str = 0,
    format: str | None = None,
    checksums: bool | Mapping[str, str] = False,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    keep_cache: bool = False,
) -> Weights:
    """Read a safetensors, GGUF or raw file into shared memory; a mapping of names to tensors.

    path: a file, an index of shards (*.index.json), any split of a GGUF, or a folder with one model.
    tensors: names to load, all by default. lazy: read each at its first use. budget: bytes the regions may
    take. device: as in bind. format: "safetensors", "gguf" or "raw" where the file does not tell by itself.
    checksums: True computes SHA-256 of each tensor, a mapping of names to hex digests is also compared.
    progress: called with (bytes done, bytes in all), in one thread at a time. cancel: an Event that
    stops the load. keep_cache: leave pages of the file that are in the page cache there; by default each is
    given back once it has been copied, so that memory never holds the model twice.

    Bytes that are not in the page cache go from the disk to the region directly and leave nothing there.
    Raises FileError (malformed, changed meanwhile, shards missing, wrong checksum), NeedError (unknown
    name or format), OutOfMemory (before anything is bound), Cancelled, OSError of open(2); nothing stays
    bound then.
    """
    if format is not None and format not in FORMATS:
        raise NeedError(f"format={format!r} is not known.", "Nothing was loaded.", f"Use one of {FORMATS}.")
    files = _choose(_open_all(Path(path), format), tensors)
    try:
        total = sum(entry.nbytes for _, _, entries in files for entry in entries)
        reader = Reader(total, progress, cancel, keep_cache)
        weights = Weights(files, reader, budget, device, Digests(checksums))
        if not lazy:
            _load_all(weights, files, budget)
        return weights
    except BaseException:
        _close(files)
        raise


def open_file(path: Path, format: str | None) -> tuple[Source, Header]:
    """Open one file and read its header; FileError, OSError."""
    source = Source(os.fspath(path))
    try:
        return source, _header(source, format)
    except BaseException:
        source.close()
        raise


def _header(source: Source, format: str | None) -> Header:
    name = source.path.lower()
    if format is None:
        format = next((f for f in ("safetensors", "gguf") if name.endswith("." + f)), "raw")
        if format == "raw" and os.pread(source.fd, 4, 0) == gguf.MAGIC:
            format = "gguf"
    if format == "raw":
        return raw_header(source.path, source.file_bytes)
    was_cached = source.cached_at_first
    read = safetensors.read_header if format == "safetensors" else gguf.read_header
    header = read(source.fd, source.path, source.file_bytes)
    if not was_cached:
        source.forget(0, 0)  # what the kernel read ahead behind the header
    return header


def _open_all(path: Path, format: str | None) -> list[Opened]:
    opened: list[Opened] = []
    try:
        for file, named in files_of(path).items():
            source, header = open_file(file, format)
            opened.append((source, header, list(header.entries)))
            wanted = set(named or ())
            if missing := wanted.difference(entry.name for entry in header.entries):
                raise FileError(
                    f"{os.fspath(file)!r} lacks {len(missing)} tensors its index names: {min(missing)!r}.",
                    "Nothing was loaded.",
                    "Index and shards are of different versions: fetch both again.",
                )
            if named is not None:
                opened[-1] = (source, header, [e for e in header.entries if e.name in wanted])
        names = [entry.name for _, _, entries in opened for entry in entries]
        if len(set(names)) != len(names):
            what = f"The shards of {os.fspath(path)!r} name a tensor twice."
            raise FileError(what, "Nothing was loaded.", "Fetch index and shards again.")
    except BaseException:
        _close(opened)
        raise
    return opened


def _choose(files: list[Opened], tensors: Iterable[str] | None) -> list[Opened]:
    if tensors is None:
        return files
    wanted = {tensors} if isinstance(tensors, str) else set(tensors)
    known = {entry.name for _, _, entries in files for entry in entries}
    if unknown := wanted - known:
        _close(files)
        raise NeedError(
            f"The file has no tensor {min(unknown)!r} ({len(unknown)} of {len(wanted)} names are unknown).",
            "Nothing was loaded.",
            f"It has {len(known)}, such as {', '.join(sorted(known)[:3])}.",
        )
    return [(source, header, [e for e in entries if e.name in wanted]) for source, header, entries in files]


def _load_all(weights: Weights, files: list[Opened], budget: int | None) -> None:
    parts = [
        (source, part)
        for source, header, es in files
        for part in plan(es, header.data_start, _region_bytes(source))
    ]
    nbytes = nbytes_of(part for _, part in parts)
    check_budget(nbytes, budget, "The regions of this load")
    _check_room(nbytes)
    weights.add_empty()
    try:
        _read_all(weights, parts)
        for source, _, _ in files:
            source.check_same()
    except BaseException:
        weights.__exit__(RuntimeError)
        raise
    _close(files)


def _read_all(weights: Weights, parts: list[tuple[Source, Part]]) -> None:
    """This thread makes regions ahead of the readers: pages cost time in which the disk would be idle."""
    with ThreadPoolExecutor(READERS, "umsh-load") as pool:
        running: set[Future[None]] = set()
        try:
            for source, part in parts:
                if len(running) >= AHEAD_MAX:
                    running = _some_ended(running)
                running.add(pool.submit(weights.read_part, source, part, weights.bind_part(part)))
            while running:
                running = _some_ended(running)
        except BaseException:
            weights.stop()
            raise


def _some_ended(running: set[Future[None]]) -> set[Future[None]]:
    """Wait for one at least; what still runs. Raises what one that ended raised."""
    ended, running = wait(running, return_when=FIRST_COMPLETED)
    for one in ended:
        one.result()
    return running


def _region_bytes(source: Source) -> int:
    """Of a file that lies in the page cache: what is there and the regions being filled count together."""
    cached = 2 * source.cached_at_first > source.file_bytes
    return CACHED_REGION_BYTES if cached else REGION_BYTES_MAX


def _check_room(nbytes: int) -> None:
    """OutOfMemory before anything is bound: regions are CPU memory, on discrete devices too."""
    usable = usable_memory(True, None, read_meminfo(), group_limits()).usable_bytes
    if nbytes > usable:
        raise OutOfMemory(
            f"The regions of this load take {nbytes} bytes; {usable} are usable here.",
            "Nothing was bound.",
            "Choose tensors, load lazily with a budget, or stream the file.",
        )


def _close(files: list[Opened]) -> None:
    for source, _, _ in files:
        source.close()
