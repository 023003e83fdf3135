"""A cold 4 GiB safetensors file until a kernel can read it: umsh, safetensors, and the disk alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

NBYTES = 4 << 30
BLOCK = 64 << 20
TENSORS = 16
REPEATS = 3
CHILD_TIMEOUT_S = 120

LOAD = """
import sys, time, os, resource
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)
size = os.path.getsize(path)
with open(path, "rb") as f: header = 8 + int.from_bytes(f.read(8), "little")
if how == "umsh":
    from umsh import native; from umsh.backends import open_device
    device = open_device("cuda:0"); device.gpu.launcher.program("work.cu")
elif how == "disk":
    from umsh import native
else:
    import torch; from safetensors.torch import load_file; torch.ones(1, device="cuda")
base = int([l for l in open("/proc/self/status") if l.startswith("VmRSS")][0].split()[1])
start = time.perf_counter()
if how == "umsh":
    memory = device.allocate("registered", size - header, "thp")
    report = native.read_file(path, header, memory.address, size - header)
    device.gpu.gather(memory, 4096, 1, 4096, "RA").result(60)
    told = str(report)
elif how == "disk":
    mapping = native.map_pages(size - header, "thp")
    start = time.perf_counter()
    told = str(native.read_file(path, header, mapping.address, size - header))
else:
    tensors = load_file(path, device="cuda"); torch.cuda.synchronize(); told = str(len(tensors))
elapsed = time.perf_counter() - start
peak = int([l for l in open("/proc/self/status") if l.startswith("VmHWM")][0].split()[1])
print(elapsed, (peak - base) * 1024, size, told.replace(" ", "_"))
"""


def file_load() -> dict[str, Any]:
    """A cold 4 GiB safetensors file until a kernel can read it: umsh, safetensors, and the disk alone."""
    found: dict[str, Any] = {"umsh": [], "safetensors": [], "disk": []}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder) / "weights.safetensors"
        _write(path)
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


def _write(path: Path) -> None:
    count, each = TENSORS, NBYTES // TENSORS
    table = {f"t{i}": {"dtype": "U8", "shape": [each], "data_offsets": [i * each, (i + 1) * each]}
             for i in range(count)}  # fmt: skip
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    block = np.random.default_rng(1).bytes(BLOCK)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(NBYTES // BLOCK):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
