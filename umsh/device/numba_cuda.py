"""The verbs of umsh.cuh inside numba-cuda kernels; addresses are integers such as flag.ptr and lock.ptr.

Each function is the one of the same name in umsh.cuh, compiled by NVRTC and linked into the kernel:
wait(flag, value, timeout_ns, abort), set(flag, value), acquire(word), release(word, value),
wait_block and wait_grid (all threads of the block or of the cooperatively launched grid call them),
lock(lock, algorithm, tag, timeout_ns, abort), unlock(lock, algorithm, tag), and lock_block,
unlock_block. abort is the address of a word that ends every wait once it is not 0, or 0 for none.
They return what the C functions return; set, release and fence return 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba.cuda

from umsh.errors import UnsupportedError

_cuda: Any = numba.cuda
if not hasattr(_cuda, "CUSource"):  # numba's own CUDA target, which numba-cuda replaces
    raise UnsupportedError(
        "This numba cannot link CUDA C++ into a kernel (no numba.cuda.CUSource).",
        "umsh's verbs are not available inside numba kernels.",
        "pip install numba-cuda",
    )
LOCK_CAS, LOCK_TICKET, LOCK_PETERSON, LOCK_DELEGATED = range(4)
TAG_GPU = 0x80000000

_HERE = Path(__file__).parent
_LOCKS = '#include "umsh_lock.cuh"\n'
# name, result type, what it calls, parameters: w word address, v value, t time in ns, i number, g grid
_FUNCTIONS = (
    ("acquire", "uint32", "umsh_acquire", "w"),
    ("release", "", "umsh_release", "wv"),
    ("fence", "", "umsh_fence", ""),
    ("wait", "int32", "umsh_wait", "wvtw"),
    ("set", "", "umsh_set", "wv"),
    ("wait_block", "int32", "umsh_wait_block", "wvtw"),
    ("set_block", "", "umsh_set_block", "wv"),
    ("wait_grid", "int32", "umsh_wait_grid", "wvgtw"),
    ("barrier_grid", "int32", "umsh_barrier_grid", "gtw"),
    ("lock", "int32", "umsh_lock", "wivtw"),
    ("unlock", "int32", "umsh_unlock", "wiv"),
    ("lock_block", "int32", "umsh_lock_block", "wivtw"),
    ("unlock_block", "", "umsh_unlock_block", "wiv"),
)
_C_TYPES = {"w": "umsh_u32 *", "g": "umsh_grid *", "v": "umsh_u32", "i": "int", "t": "umsh_u64"}
_NUMBA_TYPES = {"w": "uint64", "g": "uint64", "v": "uint32", "i": "int32", "t": "uint64"}


def _source() -> str:
    """umsh.cuh in one piece, and one wrapper a function: numba returns results through a first pointer."""
    lines = [(_HERE / "umsh.cuh").read_text().replace(_LOCKS, (_HERE / "umsh_lock.cuh").read_text())]
    for name, result, called, parameters in _FUNCTIONS:
        given = ", ".join(f"({_C_TYPES[kind]})a{at}" for at, kind in enumerate(parameters))
        declared = "".join(
            f", {'umsh_u64' if kind in 'wgt' else _C_TYPES[kind]} a{at}" for at, kind in enumerate(parameters)
        )
        call = f"*r = (int){called}({given});" if result else f"{called}({given}); *r = 0;"
        lines.append(f'extern "C" __device__ int umsh_numba_{name}(int *r{declared}) {{ {call} return 0; }}')
    return "\n".join(lines)


def _declare(name: str, result: str, parameters: str, link: Any) -> Any:
    signature = f"{result or 'int32'}({', '.join(_NUMBA_TYPES[kind] for kind in parameters)})"
    return _cuda.declare_device(f"umsh_numba_{name}", signature, link=link)


_linked = _cuda.CUSource(_source(), name="umsh_numba.cu")
_declared = {name: _declare(name, result, args, _linked) for name, result, _, args in _FUNCTIONS}
acquire, release, fence = (_declared[name] for name in ("acquire", "release", "fence"))
wait, set, wait_block, set_block = (_declared[name] for name in ("wait", "set", "wait_block", "set_block"))
wait_grid, barrier_grid = _declared["wait_grid"], _declared["barrier_grid"]
lock, unlock = _declared["lock"], _declared["unlock"]
lock_block, unlock_block = _declared["lock_block"], _declared["unlock_block"]
