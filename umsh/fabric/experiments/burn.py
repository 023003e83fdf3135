"""A matrix load of a given length on a stream, through PyTorch: what prefill does to the multiprocessors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

SIZE = 4096
CALIBRATE = 20


def matrix_burner() -> Callable[[Any, float], None]:
    """A function that enqueues bf16 products of random matrices for about the seconds it is given."""
    torch = import_module("torch")
    left, right = (torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    out = torch.empty_like(left)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        torch.matmul(left, right, out=out)
    start.record()
    for _ in range(CALIBRATE):
        torch.matmul(left, right, out=out)
    end.record()
    end.synchronize()
    one_s = start.elapsed_time(end) / 1e3 / CALIBRATE

    def burn(stream: Any, seconds: float) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            for _ in range(max(1, round(seconds / one_s))):
                torch.matmul(left, right, out=out)

    return burn
