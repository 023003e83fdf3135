"""Image preprocessing: the CPU decodes, resizes and normalises a batch that a GPU kernel reads."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

import umsh
from casestudies.gpu import Cuda, OpenCL, first_gpu
from casestudies.study import REPEATS, REPEATS_QUICK, Result, Study, interleave, machine, picture

BASELINE, OURS = "array + copy to a buffer", "umsh region"
BATCH, SIDE, PATCH = 8, 224, 16
DECODED, JPEG_QUALITY = (320, 240), 85
MEAN = np.array([0.485, 0.456, 0.406], np.float32)  # ImageNet's, as torchvision gives them
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
# Stands in for the network: the mean of each patch, as a vision transformer's first layer reads it.
SOURCE = """
KERNEL patches(GLOBAL const float *images, GLOBAL float *out) {
    uint x = ID(0), y = ID(1), plane = ID(2);
    GLOBAL const float *from = images + (plane * SIDE + y * PATCH) * SIDE + x * PATCH;
    float sum = 0;
    for (uint row = 0; row < PATCH; row++)
        for (uint column = 0; column < PATCH; column++) sum += from[row * SIDE + column];
    out[(plane * (SIDE / PATCH) + y) * (SIDE / PATCH) + x] = sum / (PATCH * PATCH);
}
""".replace("SIDE", str(SIDE)).replace("PATCH", str(PATCH))


def jpegs() -> list[bytes]:
    """A batch of seeded photographs' stand-ins: smooth colours and some noise."""
    rng = np.random.default_rng(3)
    files = []
    for _ in range(BATCH):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize(DECODED)
        noisy = np.asarray(coarse, np.int16) + rng.integers(-8, 8, (DECODED[1], DECODED[0], 1), np.int16)
        file = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "jpeg", quality=JPEG_QUALITY)
        files.append(file.getvalue())
    return files


def preprocess(files: list[bytes], out: np.ndarray) -> None:
    """Decode, resize and normalise into out: float32 (batch, 3, side, side)."""
    scale = (1 / 255 / DEVIATION)[:, None, None]
    shift = (MEAN / DEVIATION)[:, None, None]
    for file, image in zip(files, out, strict=True):
        pixels = np.asarray(Image.open(io.BytesIO(file)).convert("RGB").resize((SIDE, SIDE)))
        np.multiply(pixels.transpose(2, 0, 1), scale, out=image)
        image -= shift


class Pipeline:
    """Batches through both ways, from JPEG bytes to the end of the kernel."""

    def __init__(self, gpu: OpenCL | Cuda, batches: int) -> None:
        self._gpu, self._batches, self._files = gpu, batches, jpegs()
        self._kernel = gpu.kernel("patches")
        shape, side = (BATCH, 3, SIDE, SIDE), SIDE // PATCH
        self.copied = {BASELINE + how: make(shape) for how, make in gpu.buffers.items()}
        self._region = umsh.bind(shape, "float32", direction="cpu->gpu", device=gpu.name)
        self._out = umsh.bind((BATCH, 3, side, side), "float32", direction="gpu->cpu", device=gpu.name)
        self.means: dict[str, np.ndarray] = {}

    def run(self, way: str) -> Mapping[str, float]:
        """Milliseconds a batch, and of these from the last pixel written to the end of the kernel."""
        runs = [self._share() if way == OURS else self._copy(way) for _ in range(self._batches)]
        took = np.mean(runs, axis=0) * 1e3
        self.means[way] = umsh.read(self._out)
        return {"time": float(took[0]), "handover": float(took[1])}

    def _launch(self, argument: object) -> None:
        side = SIDE // PATCH
        with self._out.on_gpu(stream=self._gpu.queue) as out:
            self._kernel((side, side, 3 * BATCH), argument, out.arg)
        self._gpu.finish()

    def _copy(self, way: str) -> tuple[float, float]:
        copied = self.copied[way]
        start = time.perf_counter()
        preprocess(self._files, copied.array)
        written = time.perf_counter()
        copied.upload()
        self._launch(copied.arg)
        end = time.perf_counter()
        return end - start, end - written

    def _share(self) -> tuple[float, float]:
        start = time.perf_counter()
        with self._region.on_cpu(write=True) as batch:
            preprocess(self._files, np.asarray(batch))
            written = time.perf_counter()
        with self._region.on_gpu(stream=self._gpu.queue) as g:
            self._launch(g.arg)
        end = time.perf_counter()
        return end - start, end - written


def run(quick: bool) -> Result:
    """Time a batch of both ways; the kernel's results must be the same."""
    batches, repeats = (3, REPEATS_QUICK) if quick else (5, 6 * REPEATS)
    gpu = first_gpu(SOURCE)
    pipeline = Pipeline(gpu, batches)
    ways: dict[str, Callable[[], Mapping[str, float]]] = {
        way: lambda way=way: pipeline.run(way) for way in (*pipeline.copied, OURS)
    }
    samples = interleave(ways, repeats)
    return Result(
        study="image_preprocessing",
        command="python -m casestudies image_preprocessing" + (" --quick" if quick else ""),
        parameters={"batch": BATCH, "side": SIDE, "batches": batches, "repeats": repeats},
        units={"time": "ms a batch", "handover": "ms a batch"},
        samples=samples,
        verified=all(np.array_equal(pipeline.means[BASELINE], means) for means in pipeline.means.values()),
        notes=[
            "handover: from the last pixel written to the end of the kernel",
            f"mechanism in force: {pipeline._region.effective}",
        ],
        machine=machine(gpu.device),
    )


def draw(result: Result, path: Path) -> None:
    """The picture: time a batch of both ways."""
    picture(result, "time", path, f"{BATCH} JPEG files to the end of the first layer", list(result.samples))


STUDY = Study(
    name="image_preprocessing",
    prose="Decode, resize and normalise on the CPU for a network on the GPU",
    baseline=BASELINE,
    ours=OURS,
    metric="time",
    published="-16 % total; naive UC 20 x slower write (section 6.1.1)",
    run=run,
)
