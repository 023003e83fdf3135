"""Model loading: a cold and a cached file into memory that kernels read, each way in a fresh process."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from casestudies.study import (
    REPEATS,
    ROOT,
    Result,
    Samples,
    Study,
    interleave,
    machine,
    picture,
)
from umsh.backends import open_device

MIB = 1 << 20
BASELINE, OURS = "safetensors load_file + clone", "umsh.load_file"
PREAD, FAST, RUNAI = (
    "safetensors load_file(pread)",
    "fastsafetensors (no GDS)",
    "runai-model-streamer + clone",
)
GGUF, TO_CUDA = "gguf mmap + copy", "safetensors load_file(device='cuda')"
NEEDS = {FAST: "fastsafetensors", RUNAI: "runai_model_streamer", PREAD: "safetensors", GGUF: "gguf"}
DISK, PAGES = "the disk alone", "the pages alone"  # what no load can be faster than
RUN_TIMEOUT_S = 300
PEAK_RUNS = 3


def run(quick: bool) -> Result:
    """Time and peak memory of every way, cold and cached; tensors compared by checksum in every run."""
    device = open_device(0)
    return _cuda(device, quick) if device.driver == "cuda" else _host(device, quick)


def _host(device: Any, quick: bool) -> Result:
    nbytes, repeats, peaks = (128 * MIB, 1, 1) if quick else (1024 * MIB, REPEATS, PEAK_RUNS)
    absent = [f"{way}: {module} is not installed" for way, module in NEEDS.items() if not _installed(module)]
    present = [way for way in (OURS, BASELINE, PREAD, FAST, RUNAI) if _installed(NEEDS.get(way, "umsh"))]
    with _model(nbytes) as (weights, gguf):
        runs = _Runs()
        samples: Samples = {}
        for state, prepare in (("cold", _drop), ("cached", _cache)):
            ways = {f"{way}, {state}": runs.way(way, weights, prepare) for way in present}
            if state == "cold":
                ways |= {way: runs.way(way, weights, prepare) for way in (DISK, PAGES)}
            if gguf and state == "cold":
                ways |= {f"{way}, GGUF {state}": runs.way(way, gguf, prepare) for way in (OURS, GGUF)}
            samples |= interleave(ways, repeats, warm_up=0)  # each is a fresh process, imports untimed
        for way in (OURS, BASELINE) if quick else (OURS, BASELINE, PREAD):
            for state, prepare in (("cold", _drop), ("cached", _cache)):
                samples[f"{way}, {state}"]["peak"] = runs.peaks(way, weights, prepare, peaks)
    return _result(device, quick, samples, runs, nbytes, repeats, absent)


def _cuda(device: Any, quick: bool) -> Result:
    """Cold only: a load that ends in device memory against one that ends where kernels read."""
    nbytes, repeats, peaks = (128 * MIB, 1, 1) if quick else (1024 * MIB, REPEATS, PEAK_RUNS)
    with _model(nbytes) as (weights, _):
        runs = _Runs()
        samples = interleave(
            {f"{way}, cold": runs.way(way, weights, _drop) for way in (OURS, TO_CUDA)}
            | {DISK: runs.way(DISK, weights, _drop)},
            repeats,
            warm_up=0,
        )
        for way in (OURS, TO_CUDA):
            samples[f"{way}, cold"]["peak"] = runs.peaks(way, weights, _drop, peaks)
    result = _result(device, quick, samples, runs, nbytes, repeats, [])
    result.baseline = f"{TO_CUDA}, cold"
    return result


def _result(
    device: Any, quick: bool, samples: Samples, runs: _Runs, nbytes: int, repeats: int, absent: list[str]
) -> Result:
    return Result(
        study="model_loading",
        command="python -m casestudies model_loading" + (" --quick" if quick else ""),
        parameters={"nbytes": nbytes, "tensors": 24, "repeats": repeats, "peak_runs": PEAK_RUNS},
        units={"time": "s", "cpu": "s", "peak": "x file"},
        samples=samples,
        verified=runs.same(),
        notes=[*absent, "peak: anonymous and shared memory plus the file's pages in the cache (mincore)"],
        machine=machine(device),
    )


class _Runs:
    """Runs of ways in fresh processes, and the checksums they gave."""

    def __init__(self) -> None:
        self._crcs: dict[Path, set[int]] = {}

    def way(
        self, way: str, path: Path, prepare: Callable[[Path], object], what: str = "time"
    ) -> Callable[[], Mapping[str, float]]:
        def once() -> Mapping[str, float]:
            prepare(path)
            command = [sys.executable, "-m", "casestudies.model_loading.ways", way, str(path), what]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
                cwd=ROOT.parent,
            )
            if done.returncode:
                raise RuntimeError(f"{way} failed:\n{done.stderr}")
            said = json.loads(done.stdout.splitlines()[-1])
            if (crc := said.pop("crc")) is not None:
                self._crcs.setdefault(path, set()).add(crc)
            return {key: float(value) for key, value in said.items()}

        return once

    def peaks(self, way: str, path: Path, prepare: Callable[[Path], object], times: int) -> list[float]:
        once = self.way(way, path, prepare, "memory")
        return [once()["peak"] for _ in range(times)]

    def same(self) -> bool:
        return all(len(crcs) == 1 for crcs in self._crcs.values())


@contextmanager
def _model(nbytes: int) -> Iterator[tuple[Path, Path | None]]:
    """A model of 24 tensors as safetensors and, where its package is there, as GGUF; deleted at the end."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(1)
    rows = nbytes // 24 // 4096 // 2
    tensors = {f"layers.{n}.weight": rng.random((rows, 2048), np.float32).view(np.float16) for n in range(23)}
    tensors["norm.bias"] = rng.random(rows * 2048 + 3, np.float32).view(np.float16)
    with tempfile.TemporaryDirectory(dir=os.environ.get("UMSH_STUDY_FOLDER")) as folder:
        path = Path(folder) / "model.safetensors"
        save_file(tensors, path)
        gguf = Path(folder) / "model.gguf" if _installed("gguf") else None
        if gguf is not None:
            _save_gguf(tensors, gguf)
        del tensors
        yield path, gguf


def _save_gguf(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _drop(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _cache(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(16 * MIB):
            pass


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def draw(result: Result, path: Path) -> None:
    """The picture: time of every way, cold and cached."""
    size = result.parameters["nbytes"] >> 20
    picture(result, "time", path, f"Loading a model of {size} MiB", list(result.samples))


STUDY = Study(
    name="model_loading",
    prose="Load a model file into memory that kernels read",
    baseline=f"{BASELINE}, cold",
    ours=f"{OURS}, cold",
    metric="time",
    published="-75 % time, half the memory; large pages 5 % more (section 6.1.1)",
    run=run,
)
