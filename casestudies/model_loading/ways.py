"""One load in a fresh process: what people use today, and umsh; prints what it took as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Load = Callable[[Path], Mapping[str, Any]]
SAMPLE_S = 0.02


def _umsh(path: Path) -> Mapping[str, Any]:
    import umsh

    return umsh.load_file(path)


def _safetensors(path: Path) -> Mapping[str, Any]:
    """load_file maps the file; .clone() is the copy into place that follows on every device."""
    from safetensors.torch import load_file

    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def _safetensors_cuda(path: Path) -> Mapping[str, Any]:
    import torch
    from safetensors.torch import load_file

    tensors = load_file(path, device="cuda")
    torch.cuda.synchronize()
    return tensors


def _safetensors_pread(path: Path) -> Mapping[str, Any]:
    from safetensors.torch import load_file

    return load_file(path, backend="pread")


def _fastsafetensors(path: Path) -> Mapping[str, Any]:
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
    loader.add_filenames({0: [str(path)]})
    held = loader.copy_files_to_device()
    _KEEP.extend((loader, held))
    return {name: held.get_tensor(name) for name in held.key_to_rank_lidx}


def _runai(path: Path) -> Mapping[str, Any]:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(str(path))
        return {name: tensor.clone() for name, tensor in streamer.get_tensors()}


def _disk(path: Path) -> Mapping[str, Any]:
    """What the disk alone takes: every byte by direct reads into pages that are there already."""
    from umsh.native import read_file

    report = read_file(path, 0, _KEEP[0].address, path.stat().st_size)
    if not report.direct:
        raise OSError(f"no direct reads here: {report.fallback}")
    return {}


def _pages(path: Path) -> Mapping[str, Any]:
    """What making the memory alone takes, as every load into memory of its own does."""
    from umsh.native import map_pages

    _KEEP.append(map_pages(path.stat().st_size, "thp"))
    return {}


def _mmap_copy(path: Path) -> Mapping[str, Any]:
    """As llama.cpp does for a device buffer: map the GGUF, copy each tensor."""
    import gguf

    return {tensor.name: tensor.data.copy() for tensor in gguf.GGUFReader(path).tensors}


WAYS: dict[str, Load] = {
    "umsh.load_file": _umsh,
    "safetensors load_file + clone": _safetensors,
    "safetensors load_file(pread)": _safetensors_pread,
    "safetensors load_file(device='cuda')": _safetensors_cuda,
    "fastsafetensors (no GDS)": _fastsafetensors,
    "runai-model-streamer + clone": _runai,
    "gguf mmap + copy": _mmap_copy,
    "the disk alone": _disk,
    "the pages alone": _pages,
}
_KEEP: list[Any] = []


def warm(way: str, path: Path) -> None:
    """Imports and the driver's start are not part of a load in any way."""
    import numpy  # noqa: F401

    if way == "the disk alone":
        _pages(path)
    elif way == "the pages alone":
        import umsh.native
    elif way.startswith("gguf"):
        import gguf  # noqa: F401
    elif way.startswith("umsh"):
        import umsh
        import umsh.files

        umsh.unbind(umsh.bind(1, "u1", direction="cpu->gpu", source="file"))
    else:
        _warm_torch(way)


def _warm_torch(way: str) -> None:
    import torch

    torch.ones(1, device="cuda" if "cuda" in way else "cpu").clone()
    if way.startswith("fast"):
        import fastsafetensors  # noqa: F401
    elif way.startswith("runai"):
        import runai_model_streamer  # noqa: F401
    else:
        import safetensors.torch  # noqa: F401


class Memory(threading.Thread):
    """Samples anonymous and shared memory of this process plus the file's pages in the page cache."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path, self.peak_bytes, self._ended = path, 0, threading.Event()
        self._base = _private_bytes()

    def run(self) -> None:
        from umsh.native import file_resident

        with self._path.open("rb") as file:
            size = self._path.stat().st_size
            while not self._ended.wait(SAMPLE_S):
                now = _private_bytes() - self._base + file_resident(file.fileno(), 0, size)
                self.peak_bytes = max(self.peak_bytes, now)

    def end(self) -> int:
        time.sleep(2 * SAMPLE_S)
        self._ended.set()
        self.join()
        return self.peak_bytes


def _private_bytes() -> int:
    total = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1]) * 1024
    return total


def digest(tensors: Mapping[str, Any]) -> int:
    """CRC-32 over all tensors' bytes in the order of their names."""
    import numpy as np

    crc = 0
    for name in sorted(tensors):
        array = tensors[name]
        array = array.cpu().numpy() if hasattr(array, "untyped_storage") else np.asarray(array)
        crc = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, crc)
    return crc


def main(way: str, path: Path, memory: bool) -> None:
    warm(way, path)
    sampler = Memory(path)
    if memory:
        sampler.start()
    cpu, start = time.process_time(), time.perf_counter()
    tensors = WAYS[way](path)
    took = {"time": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    if memory:
        took = {"peak": sampler.end() / path.stat().st_size}
    print(json.dumps({**took, "crc": digest(tensors) if tensors else None}), flush=True)
    os._exit(0)  # some libraries' threads do not end by themselves


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "memory")
