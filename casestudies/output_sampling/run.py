"""Output sampling: a GPU kernel makes logits, the CPU draws the next token by top-k and top-p."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import umsh
from casestudies.gpu import Cuda, OpenCL, first_gpu
from casestudies.study import REPEATS, REPEATS_QUICK, Result, Study, interleave, machine, picture

BASELINE, OURS = "buffer + copy to the CPU", "umsh region"
BATCH, VOCABULARY = 8, 128_256  # of Llama 3
TOP_K, TOP_P, TEMPERATURE, SEED = 50, 0.9, 0.8, 5
# Stands in for the model's last layer: pseudo-random logits that depend on the token drawn before.
SOURCE = """
KERNEL logits(GLOBAL float *out, GLOBAL const uint *tokens, uint vocabulary) {
    uint i = ID(0), row = ID(1);
    uint h = (i + 1) * 2654435761u ^ (tokens[row] + 1) * 2246822519u;
    h ^= h >> 15; h *= 2246822519u; h ^= h >> 13; h *= 3266489917u; h ^= h >> 16;
    out[row * vocabulary + i] = (h >> 8) * (24.0f / 16777216.0f);
}
"""


def sample(logits: np.ndarray, rng: np.random.Generator) -> int:
    """One token id from logits of shape (vocabulary,): temperature, top-k, top-p, multinomial."""
    top = np.argpartition(logits, -TOP_K)[-TOP_K:]
    top = top[np.argsort(-logits[top], kind="stable")]
    weights = np.exp((logits[top] - logits[top[0]]) / TEMPERATURE)
    shares = np.cumsum(weights / weights.sum())
    kept = int(np.searchsorted(shares, TOP_P)) + 1
    drawn = int(np.searchsorted(shares[:kept], rng.random() * shares[kept - 1]))
    return int(top[drawn])


class Decoder:
    """Draws `steps` tokens for a batch; `logits` runs the kernel and calls back with the CPU's array."""

    def __init__(self, gpu: OpenCL | Cuda, steps: int) -> None:
        self._gpu, self._steps = gpu, steps
        self._kernel = gpu.kernel("logits")
        self.copied = {BASELINE + how: make((BATCH, VOCABULARY)) for how, make in gpu.buffers.items()}
        self._tokens = umsh.bind((BATCH,), "uint32", direction="cpu->gpu", device=gpu.name)
        self._region = umsh.bind(
            (BATCH, VOCABULARY), "float32", direction="gpu->cpu", source="gpu", device=gpu.name
        )
        self.drawn: dict[str, list[list[int]]] = {}

    def run(self, way: str) -> Mapping[str, float]:
        """Milliseconds a token of the whole loop: kernel, hand-over, sampling."""
        rngs = [np.random.default_rng(SEED + row) for row in range(BATCH)]
        tokens, drawn = [0] * BATCH, []
        start = time.perf_counter()
        for _ in range(self._steps):
            umsh.write(self._tokens, np.array(tokens, np.uint32))
            tokens = self._share(rngs) if way == OURS else self._copy(rngs, way)
            drawn.append(tokens)
        took = time.perf_counter() - start
        self.drawn[way] = drawn
        return {"time": took / self._steps * 1e3}

    def _launch(self, argument: object) -> None:
        with self._tokens.on_gpu(stream=self._gpu.queue) as tokens:
            self._kernel((VOCABULARY, BATCH), argument, tokens.arg, np.uint32(VOCABULARY))

    def _copy(self, rngs: list[np.random.Generator], way: str) -> list[int]:
        copied = self.copied[way]
        self._launch(copied.arg)
        copied.download()
        return [sample(row, rng) for row, rng in zip(copied.array, rngs, strict=True)]

    def _share(self, rngs: list[np.random.Generator]) -> list[int]:
        with self._region.on_gpu(stream=self._gpu.queue) as g:
            self._launch(g.arg)
        with self._region.on_cpu() as logits:
            rows = np.asarray(logits)
            return [sample(row, rng) for row, rng in zip(rows, rngs, strict=True)]


def run(quick: bool) -> Result:
    """Time a token of both ways; the tokens drawn must be the same."""
    steps, repeats = (10, REPEATS_QUICK) if quick else (10, 6 * REPEATS)
    gpu = first_gpu(SOURCE)
    decoder = Decoder(gpu, steps)
    ways: dict[str, Callable[[], Mapping[str, float]]] = {
        way: lambda way=way: decoder.run(way) for way in (*decoder.copied, OURS)
    }
    samples = interleave(ways, repeats)
    return Result(
        study="output_sampling",
        command="python -m casestudies output_sampling" + (" --quick" if quick else ""),
        parameters={"batch": BATCH, "vocabulary": VOCABULARY, "steps": steps, "repeats": repeats},
        units={"time": "ms a token"},
        samples=samples,
        verified=all(drawn == decoder.drawn[BASELINE] for drawn in decoder.drawn.values()),
        notes=[f"mechanism in force: {decoder._region.effective}"],
        machine=machine(gpu.device),
    )


def draw(result: Result, path: Path) -> None:
    """The picture: time a token of both ways."""
    picture(
        result, "time", path, f"One token for {BATCH} sequences, logits to sampled ids", list(result.samples)
    )


STUDY = Study(
    name="output_sampling",
    prose="Logits from the GPU, top-k and top-p sampling on the CPU, every token",
    baseline=BASELINE,
    ours=OURS,
    metric="time",
    published="-18 % end to end (section 6.1.2)",
    run=run,
)
