"""Weights: the mapping that load_file returns, and the regions behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import umsh.api
from umsh.backends import open_device
from umsh.errors import FileError, NeedError, OutOfMemory, RegionBusy
from umsh.files.plan import PAGE_BYTES, Part, nbytes_of, plan
from umsh.files.reading import LoadReport, Reader, Source
from umsh.files.tensors import FileTensor
from umsh.need import Need
from umsh.region import TIMEOUT_S
from umsh.resolve import resolve_data

if TYPE_CHECKING:
    from umsh.files.header import Entry, Header
    from umsh.region import Region


class Weights(Mapping[str, FileTensor]):
    """Names to tensors in shared memory; close() or a `with` block gives the memory back.

    metadata: what the files say of themselves. report: how the bytes came in. nbytes: bytes bound now.
    A lazy one reads a tensor at its first use, as long as `budget` bytes are not exceeded; release()
    makes room. Dropping it frees each region with the last array made from it.
    """

    def __init__(self, files: list[tuple[Source, Header, list[Entry]]], reader: Reader, budget: int | None,
                 device: int | str, digests: Digests) -> None:  # fmt: skip
        self._files = {entry.name: (source, header, entry) for source, header, es in files for entry in es}
        self._sources = [source for source, _, _ in files]
        self._reader, self._budget, self._device, self._digests = reader, budget, device, digests
        self._tensors: dict[str, FileTensor] = {}
        self._regions: dict[Region, int] = {}  # and its references when nobody had an array of it
        self.metadata: dict[str, Any] = {k: v for _, header, _ in files for k, v in header.metadata.items()}
        self.report: LoadReport = reader.report

    @property
    def nbytes(self) -> int:
        return sum(region.nbytes for region in self._regions)

    @property
    def checksums(self) -> Mapping[str, str]:
        """SHA-256 of the tensors loaded so far, in hex; empty unless asked for."""
        return self._digests.found

    def __getitem__(self, name: str) -> FileTensor:
        if name not in self._tensors:
            self._load(name)
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def entry(self, name: str) -> Entry:
        """What the file says of a tensor; reads nothing."""
        return self._files[name][2]

    def release(self, name: str) -> None:
        """Give one tensor's memory back, in a lazy mapping; its next use reads it again. RegionBusy."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return
        region = tensor.region
        if region is not None and any(t.region is region for n, t in self._tensors.items() if n != name):
            raise NeedError(
                f"{name!r} shares its region with other tensors.",
                "Nothing was given back.",
                "Load with lazy=True to release single tensors, or close() the whole.",
            )
        if region is not None:
            self._check_unused(region)
            umsh.api.unbind(region)
            del self._regions[region]
        del self._tensors[name]

    def close(self) -> None:
        """Unbind every region and close the files. RegionBusy while arrays live; nothing is freed then."""
        for region in self._regions:
            self._check_unused(region)
        self._tensors.clear()
        while self._regions:
            umsh.api.unbind(self._regions.popitem()[0])
        for source in self._sources:
            source.close()
        self._files.clear()

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
            return
        for source in self._sources:
            source.close()
        self._tensors.clear()
        self._regions.clear()  # arrays may live in the exception's frames: the last one frees

    def bind_part(self, part: Part) -> Region:
        """A region for one part, still empty; read_part takes it."""
        return bind_bytes(part.nbytes, self._device)

    def read_part(self, source: Source, part: Part, region: Region) -> None:
        """Read one part into its region and add its tensors; on failure nothing of it is left."""
        try:
            added = fill(source, part, region, self._reader)
            for tensor in added.values():
                self._digests.take(source, tensor)
        except BaseException:
            umsh.api.unbind(region)
            raise
        self._regions[region] = region._refs()
        self._tensors.update(added)

    def stop(self) -> None:
        """Let loads in other threads end at their next chunk."""
        self._reader.stop()

    def add_empty(self) -> None:
        """Add the tensors that have no bytes."""
        for name, (source, _, entry) in self._files.items():
            if not entry.nbytes:
                self._tensors[name] = FileTensor(entry, None, 0)
                self._digests.take(source, self._tensors[name])

    def _check_unused(self, region: Region) -> None:
        if live := region._refs() - self._regions[region]:
            raise RegionBusy(
                f"{live} arrays or tensors of this load still live.",
                "Nothing was given back.",
                "Delete them first; or drop the mapping, then the last of them frees the memory.",
            )

    def _load(self, name: str) -> None:
        source, header, entry = self._files[name]
        parts = plan([entry], header.data_start)
        check_budget(self.nbytes + nbytes_of(parts), self._budget, f"With {name!r} the tensors held")
        if not parts:
            self._tensors[name] = FileTensor(entry, None, 0)
        for part in parts:
            source.check_same()
            self.read_part(source, part, self.bind_part(part))
            try:
                source.check_same()
            except FileError:
                self.release(name)
                raise


class Digests:
    """SHA-256 of tensors: computed, and compared where the caller knows what is right."""

    def __init__(self, asked: bool | Mapping[str, str]) -> None:
        self._asked = bool(asked) if isinstance(asked, bool) else True
        self._right = {} if isinstance(asked, bool) else dict(asked)
        self.found: dict[str, str] = {}

    def take(self, source: Source, tensor: FileTensor) -> None:
        """FileError when the tensor's bytes are not the ones the caller expects."""
        if not self._asked:
            return
        from hashlib import sha256

        found = sha256(tensor.bits.reshape(-1).view(np.uint8).data).hexdigest()
        right = self._right.get(tensor.name, found)
        if right.lower() != found:
            raise FileError(
                f"Tensor {tensor.name!r} of {source.path!r} has SHA-256 {found}, not {right}.",
                "The load was given up and its memory given back.",
                "Fetch the file again from its source.",
            )
        self.found[tensor.name] = found


def bind_bytes(nbytes: int, device: int | str) -> Region:
    """A region for nbytes of a file, on large pages where a mechanism in force can have them.

    A choice ranks hand-overs; a load also pays once for making the pages, where large ones win
    (paper section 6.1.1). Only the page kind, never the sharing, is decided here.
    """
    need = Need("cpu->gpu", "file", "kernel", nbytes)
    opened = open_device(device)
    pages = {kind.name: kind.pages for kind in opened.memory_kinds()}
    candidates = resolve_data(opened, need).candidates
    first = candidates[0]
    alike = [m for m in candidates if (m.write == "copy") == (first.write == "copy")]
    large = [m for m in alike if "thp" in pages[m.memory]]
    best = replace(large[0], pages="thp") if large else first
    return umsh.api.bind(
        nbytes, "u1", direction=need.direction, source=need.source, device=device, mechanism=best.name
    )


def fill(
    source: Source, part: Part, region: Region, reader: Reader, timeout_s: float = TIMEOUT_S
) -> dict[str, FileTensor]:
    """Read the extents of `part` into `region`, publish them, and name what lies where."""
    with region.on_cpu(write=True, timeout_s=timeout_s) as array:
        address = array.ctypes.data
        skew = -address % PAGE_BYTES
        for extent in part.extents:
            reader.read(source, extent.offset, address + skew + extent.at, extent.nbytes)
    with region.on_gpu(timeout_s=timeout_s):  # waits until the device has it, where it has memory of its own
        pass
    return {
        entry.name: FileTensor(entry, region, skew + extent.place(entry))
        for extent in part.extents
        for entry in extent.entries
    }


def check_budget(nbytes: int, budget: int | None, what: str) -> None:
    """OutOfMemory when nbytes are more than the caller allows."""
    if budget is not None and nbytes > budget:
        raise OutOfMemory(
            f"{what} take {nbytes} bytes; the budget is {budget}.",
            "Nothing more was bound.",
            "Raise the budget, choose tensors, release() some of a lazy load, or stream the file.",
        )
