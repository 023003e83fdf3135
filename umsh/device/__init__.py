"""The verbs inside kernels: headers for OpenCL C and CUDA C++."""

from __future__ import annotations

from pathlib import Path

INCLUDE = Path(__file__).parent  # the folder of umsh.clh and umsh.cuh, for a compiler's -I
