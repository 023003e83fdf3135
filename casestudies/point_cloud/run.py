"""Point cloud: a GPU kernel makes features of the occupied voxels, the CPU picks the strong ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import umsh
from casestudies.gpu import Cuda, OpenCL, first_gpu
from casestudies.study import REPEATS, REPEATS_QUICK, Result, Study, interleave, machine, picture

BASELINE, OURS = "buffer + copy of the occupied part", "umsh region"
VOXELS_MAX, CHANNELS, THRESHOLD = 80_000, 64, 0.999
# Stands in for the sparse network's last layer: seeded features in [0, 1) of the voxels in use.
SOURCE = """
KERNEL features(GLOBAL float *out, uint count, uint frame) {
    uint i = ID(0);
    if (i >= count * CHANNELS) return;
    uint h = (i + 1) * 2654435761u ^ (frame + 1) * 2246822519u;
    h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;
    out[i] = (h >> 8) * (1.0f / 16777216.0f);
}
""".replace("CHANNELS", str(CHANNELS))


def post_process(features: np.ndarray) -> np.ndarray:
    """Voxels whose strongest channel passes the threshold, and that channel: int64 (n, 2), in voxel order.

    features: float32 (voxels, channels); every one is read once.
    """
    strongest = features.max(axis=1)
    kept = np.flatnonzero(strongest > THRESHOLD)
    return np.stack([kept, features[kept].argmax(axis=1)], axis=1)


class Detector:
    """Frames through both ways; the kernel runs to its end before the clock starts."""

    def __init__(self, gpu: OpenCL | Cuda, frames: int) -> None:
        self._gpu, self._frames = gpu, frames
        self._kernel = gpu.kernel("features")
        self.copied = {BASELINE + how: make((VOXELS_MAX, CHANNELS)) for how, make in gpu.buffers.items()}
        self._region = umsh.bind(
            (VOXELS_MAX, CHANNELS), "float32", direction="gpu->cpu", source="gpu", device=gpu.name
        )
        self.found: dict[str, list[np.ndarray]] = {}

    def run(self, way: str) -> Mapping[str, float]:
        """Milliseconds a frame: until the CPU may read (handover), and with its post-processing (time)."""
        took = np.zeros(2)
        found = []
        for frame in range(self._frames):
            count = VOXELS_MAX // 2 + 997 * frame % (VOXELS_MAX // 2)
            handover, total, kept = (
                self._share(frame, count) if way == OURS else self._copy(frame, count, way)
            )
            took += (handover, total)
            found.append(kept)
        self.found[way] = found
        handover_ms, total_ms = took / self._frames * 1e3
        return {"handover": handover_ms, "time": total_ms}

    def _launch(self, argument: object, frame: int, count: int) -> None:
        shape = (VOXELS_MAX * CHANNELS,)
        self._kernel(shape, argument, np.uint32(count), np.uint32(frame))

    def _copy(self, frame: int, count: int, way: str) -> tuple[float, float, np.ndarray]:
        copied = self.copied[way]
        self._launch(copied.arg, frame, count)
        self._gpu.finish()
        start = time.perf_counter()
        copied.download(count * CHANNELS * 4)
        ready = time.perf_counter()
        kept = post_process(copied.array[:count])
        return ready - start, time.perf_counter() - start, kept

    def _share(self, frame: int, count: int) -> tuple[float, float, np.ndarray]:
        with self._region.on_gpu(stream=self._gpu.queue) as g:
            self._launch(g.arg, frame, count)
        self._gpu.finish()
        start = time.perf_counter()
        with self._region.on_cpu() as features:
            ready = time.perf_counter()
            kept = post_process(np.asarray(features)[:count])
        return ready - start, time.perf_counter() - start, kept


def run(quick: bool) -> Result:
    """Hand-over and total of both ways; the voxels found must be the same."""
    frames, repeats = (5, REPEATS_QUICK) if quick else (10, 4 * REPEATS)
    gpu = first_gpu(SOURCE)
    detector = Detector(gpu, frames)
    ways: dict[str, Callable[[], Mapping[str, float]]] = {
        way: lambda way=way: detector.run(way) for way in (*detector.copied, OURS)
    }
    samples = interleave(ways, repeats)
    same = all(
        np.array_equal(a, b)
        for found in detector.found.values()
        for a, b in zip(detector.found[BASELINE], found, strict=True)
    )
    return Result(
        study="point_cloud",
        command="python -m casestudies point_cloud" + (" --quick" if quick else ""),
        parameters={"voxels_max": VOXELS_MAX, "channels": CHANNELS, "frames": frames, "repeats": repeats},
        units={"time": "ms a frame", "handover": "ms a frame"},
        samples=samples,
        verified=same,
        notes=[
            "time: hand-over and post-processing, so that what a copy warms for the CPU counts for it",
            f"mechanism in force: {detector._region.effective}",
        ],
        machine=machine(gpu.device),
    )


def draw(result: Result, path: Path) -> None:
    """The picture: hand-over and post-processing of both ways."""
    picture(
        result, "time", path, "Voxel features from kernel's end to the found voxels", list(result.samples)
    )


STUDY = Study(
    name="point_cloud",
    prose="Sparse voxel features from the GPU to CPU post-processing",
    baseline=BASELINE,
    ours=OURS,
    metric="time",
    published="-34 % transfer latency (section 6.1.2)",
    run=run,
)
