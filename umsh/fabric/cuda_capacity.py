"""Measure what one large copy alone gets on a link of a CUDA machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umsh.fabric.link import parse

if TYPE_CHECKING:
    from umsh.fabric.cuda import CudaBackend

PROBE_NBYTES = 64 << 20
PROBE_COPIES = 8


def measure(backend: CudaBackend, link: str) -> float:
    """Bytes/s of the fastest of `PROBE_COPIES` copies of `PROBE_NBYTES`: others' traffic can only slow one
    down."""
    kind, device, peer = parse(link)
    here = backend.alloc_device(PROBE_NBYTES, device)
    there = backend.alloc_pinned(PROBE_NBYTES) if peer is None else backend.alloc_device(PROBE_NBYTES, peer)
    dst, src = (here, there) if kind == "h2d" else (there, here)
    stream = backend.open_stream(device)
    try:
        return max(_time_copy(backend, device, dst, src, stream) for _ in range(PROBE_COPIES))
    finally:
        backend.close_stream(stream)
        backend.free_device(here, device)
        if peer is None:
            backend.free_pinned(there)
        else:
            backend.free_device(there, peer)


def _time_copy(backend: CudaBackend, device: int, dst: int, src: int, stream: int) -> float:
    with backend.on(device):
        first, last = backend.call("cuEventCreate", 0), backend.call("cuEventCreate", 0)
        backend.call("cuEventRecord", first, stream)
        backend.call("cuMemcpyAsync", dst, src, PROBE_NBYTES, stream)
        backend.call("cuEventRecord", last, stream)
        backend.call("cuEventSynchronize", last)
        elapsed_ms = float(backend.call("cuEventElapsedTime", first, last))
        for event in (first, last):
            backend.call("cuEventDestroy", event)
    return PROBE_NBYTES / elapsed_ms * 1e3
