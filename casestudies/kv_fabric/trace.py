"""Agent-shaped requests: a generator fitted to quantiles of public traces, and a reader for recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

KV_NBYTES_PER_TOKEN = 147_456
"""Qwen3-8B in bf16: 36 layers x 8 key-value heads x 128 x 2 (key, value) x 2 bytes."""
TOKENS_MAX = 63_747
"""9.4 GB of keys and values: the largest size of the study."""

# Quantiles of 30 agent sessions of a public collection (callanjfox/kv-cache-tester, Apache-2.0): of each
# column, the values at the shares below. No row of it is kept here.
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
GAP_S = (4, 8, 10, 16, 38, 114, 1558, 3972)
FIRST_TOKENS = (9_691, 13_429, 20_060, 44_457, 123_320, 232_925, 496_510, 576_445)
NEW_TOKENS = (81, 232, 393, 771, 1_871, 4_819, 27_998, 110_237)
REQUESTS_A_SESSION = 33
SESSION_S = 2_580


class Request(NamedTuple):
    """One request: arrival in s, tokens whose keys and values are made now, tokens reused."""

    arrival_s: float
    new_tokens: int
    reused_tokens: int

    @property
    def kv_nbytes(self) -> int:
        return self.new_tokens * KV_NBYTES_PER_TOKEN


def _draw(rng: np.random.Generator, values: tuple[float, ...], n: int) -> npt.NDArray[np.float64]:
    """`n` values whose quantiles are `values`, log-linear between them."""
    return np.exp(np.interp(rng.random(n), SHARES, np.log(np.maximum(values, 1))))


def generate(seconds: float = 60.0, sessions: int = 60, seed: int = 1) -> list[Request]:
    """Requests of `seconds` out of `sessions` agent sessions in their steady state."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(sessions):
        gaps = _draw(rng, GAP_S, REQUESTS_A_SESSION - 1)
        times = rng.uniform(-SESSION_S, seconds) + np.concatenate(([0.0], np.cumsum(gaps)))
        new = np.concatenate((_draw(rng, FIRST_TOKENS, 1), _draw(rng, NEW_TOKENS, REQUESTS_A_SESSION - 1)))
        before = np.concatenate(([0.0], np.cumsum(new)[:-1]))
        for time_s, tokens, reused in zip(times, new, before, strict=True):
            if 0 <= time_s < seconds:
                made.append(Request(float(time_s), min(int(tokens), TOKENS_MAX), int(reused)))
    return sorted(made)


def read(path: Path, seconds: float = 60.0) -> list[Request]:
    """Requests of a CSV with `t_s` or `t_ms` (or `session` and `t_s`), `reused_tokens` and `new_tokens`.

    Sessions that each begin at 0 are spread over the time by a fixed seed. Raises `ValueError` for other
    columns.
    """
    table = pd.read_csv(path)
    missing = {"new_tokens", "reused_tokens"} - set(table.columns)
    if missing or not {"t_s", "t_ms"} & set(table.columns):
        raise ValueError(
            f"{path} needs t_s or t_ms, new_tokens and reused_tokens; it has {list(table.columns)}"
        )
    times = table["t_s"] if "t_s" in table else table["t_ms"] / 1e3
    if "session" in table:
        rng = np.random.default_rng(1)
        offsets = {session: rng.uniform(-SESSION_S, seconds) for session in table["session"].unique()}
        times = times + table["session"].map(offsets)
    kept = table.assign(at=times)[(times >= 0) & (times < seconds) & (table["new_tokens"] > 0)].sort_values(
        "at"
    )
    return [
        Request(float(at), min(int(new), TOKENS_MAX), int(reused))
        for at, new, reused in zip(kept["at"], kept["new_tokens"], kept["reused_tokens"], strict=True)
    ]
