"""A cold safetensors file until a kernel has read of it: umsh, safetensors, and the disk alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 64 << 20
TENSORS = 16
REPEATS = 5
CHILD_TIMEOUT_S = 120

# The header's length is odd on purpose, as most checkpoints' is. "disk" reads the same bytes direct, from
# offset 0 into pages that are there already: no bounce, no allocation, no registration.
LOAD = """
import sys, time, os
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)
size = os.path.getsize(path)
if how == "disk":
    from umsh import native
    mapping = native.map_pages(size, "thp")
else:
    import torch; torch.ones(1, device="cuda")
    if how == "umsh":
        import umsh
        umsh.unbind(umsh.bind(1, "u1", direction="cpu->gpu", source="file"))
    else:
        from safetensors.torch import load_file
def status(key):
    return int([l for l in open("/proc/self/status") if l.startswith(key)][0].split()[1]) * 1024
base = status("VmRSS")
start = time.perf_counter()
if how == "disk":
    told = str(native.read_file(path, 0, mapping.address, size))
else:
    if how == "umsh":
        weights = umsh.load_file(path)
        tensors = {name: torch.from_dlpack(weights[name]) for name in weights}
        told = f"{weights.report} {next(iter(weights.values())).region.effective}"
    else:
        tensors = load_file(path, device="cuda"); told = str(len(tensors))
    assert all(t.is_cuda for t in tensors.values())
    sum(int(t[:4096].sum()) for t in tensors.values())
    torch.cuda.synchronize()
print(time.perf_counter() - start, status("VmHWM") - base, size, told.replace(" ", "_"))
os._exit(0)
"""


def file_load(nbytes: int) -> dict[str, Any]:
    """Seconds and peak of each way, in turn, each in a fresh process with the file out of the page cache."""
    found: dict[str, Any] = {"umsh": [], "safetensors": [], "disk": []}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder) / "weights.safetensors"
        _write(path, nbytes)
        for _ in range(REPEATS):
            for how, samples in found.items():
                told = subprocess.run(
                    [sys.executable, "-c", LOAD, str(path), how],
                    capture_output=True,
                    text=True,
                    timeout=CHILD_TIMEOUT_S,
                )
                if told.returncode:
                    raise RuntimeError(told.stderr)
                elapsed, peak, size, note = told.stdout.split()
                samples.append(
                    {"s": float(elapsed), "peak_ratio": int(peak) / int(size), "note": note.replace("_", " ")}
                )
    return found


def _write(path: Path, nbytes: int) -> None:
    each = nbytes // TENSORS
    table = {f"t{i}": {"dtype": "U8", "shape": [each], "data_offsets": [i * each, (i + 1) * each]}
             for i in range(TENSORS)}  # fmt: skip
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    block = np.random.default_rng(1).bytes(BLOCK)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(nbytes // BLOCK):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
