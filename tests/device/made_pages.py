"""What it takes to make 1 GiB of pages and to register them, on 4 KB and on huge pages."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time

import numpy as np

from umsh import native
from umsh.backends.cuda.calls import check, driver
from umsh.backends.cuda.device import CudaDevice

SIZE = 1 << 30
MADV_POPULATE_WRITE = 23
LIBC = ctypes.CDLL(None)


def pages(device: CudaDevice, just_freed: bool) -> dict[str, list[float]]:
    """Register and prefault 1 GiB. just_freed: of memory that a virtual machine's host has not taken back."""
    size, native_driver = SIZE, driver()
    samples: dict[str, list[float]] = {}

    def before() -> None:
        if just_freed:
            native.map_pages(size, "thp").close()

    with device.current():
        for _ in range(5):
            for kind in ("4k", "thp"):
                before()
                start = time.perf_counter()
                mapping = native.map_pages(size, kind)
                samples.setdefault(f"prefault_{kind}", []).append(time.perf_counter() - start)
                start = time.perf_counter()
                check(native_driver.cuMemHostRegister(mapping.address, size, 3), "cuMemHostRegister")
                samples.setdefault(f"register_{kind}", []).append(time.perf_counter() - start)
                check(native_driver.cuMemHostUnregister(mapping.address), "cuMemHostUnregister")
                mapping.close()
                for threads in (1, 4, 8, 16):
                    before()
                    samples.setdefault(f"populate_{kind}_{threads}", []).append(
                        _populate(size, kind, threads)
                    )
                before()
                samples.setdefault(f"touch_{kind}", []).append(_touch(size, kind))
    return samples


def _populate(size: int, kind: str, threads: int) -> float:
    """Map and populate by one call a thread; ctypes lets the others run, Python's mmap.madvise does not."""
    part = size // threads
    start = time.perf_counter()
    mapping = _mapped(size, kind)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    places = [(ctypes.c_void_p(address + n * part), ctypes.c_size_t(part)) for n in range(threads)]
    populate = [threading.Thread(target=LIBC.madvise, args=(*place, MADV_POPULATE_WRITE)) for place in places]
    for thread in populate:
        thread.start()
    for thread in populate:
        thread.join()
    elapsed = time.perf_counter() - start
    mapping.close()
    return elapsed


def _touch(size: int, kind: str) -> float:
    """Map and write one byte of every 4 KB with one thread, as a plain program does by using the memory."""
    start = time.perf_counter()
    mapping = _mapped(size, kind)
    array = np.frombuffer(mapping, np.uint8)
    array[::4096] = 1
    elapsed = time.perf_counter() - start
    del array
    mapping.close()
    return elapsed


def _mapped(size: int, kind: str) -> mmap.mmap:
    """Anonymous memory; kernels from 6.7 on place it so that large pages fit."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping.madvise(mmap.MADV_HUGEPAGE if kind == "thp" else mmap.MADV_NOHUGEPAGE)
    return mapping
