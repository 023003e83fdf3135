"""The figures of the CUDA driver in one run: `python tests/device/figures.py OUT.json [STEP]...`.

Steps named are run again and replace those in OUT.json.

Medians of interleaved repetitions with every sample kept; data is verified. Times are wall clock from
the call to the completed event, in seconds, unless the name says otherwise.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from umsh import native
from umsh.backends import facts_of, open_device
from umsh.backends.cuda.calls import check, driver
from umsh.backends.cuda.device import CudaDevice
from umsh.backends.cuda.stream import CudaStream
from umsh.backends.pages import view

sys.path.insert(0, str(Path(__file__).parent))
from cold_file import file_load

MIB = 1 << 20
LARGE = 256 * MIB
MADV_POPULATE_WRITE = 23
LIBC = ctypes.CDLL(None)
SECONDS = 60.0
Samples = dict[str, list[float]]


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(works: dict[str, Callable[[], Any]], repeats: int) -> Samples:
    """Each work once to warm up, then all of them in turn, `repeats` times."""
    for work in works.values():
        work()
    samples: Samples = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            samples[name].append(timed(work))
    return samples


def flag(device: CudaDevice) -> Samples:
    """One flag round trip inside a kernel, against launch + synchronise of an empty kernel."""
    words, rounds = device.allocate("pinned", 4096, "driver"), 2000
    samples: Samples = {"round_trip": [], "launch_synchronise": []}
    stream, native_driver = CudaStream(device), driver()
    function = device.gpu.launcher.program("control.cu").function("umsh_poll_after")
    params = np.array([words.device_address] * 4, np.uint64)
    places = np.arange(params.ctypes.data, params.ctypes.data + 32, 8, dtype=np.uint64)
    params[1] = 0xFFFFFFFF  # a round that never is: the kernel does nothing

    def launch() -> None:
        native_driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream.native, int(places.ctypes.data), 0)
        check(native_driver.cuStreamSynchronize(stream.native), "cuStreamSynchronize")

    with device.current():
        for _ in range(15):
            view(words.address, 4096)[:] = 0
            gpu, start = device.gpu.echo(words, rounds, False), time.perf_counter()
            assert device.cpu.echo(words, rounds, True).result(SECONDS) == rounds
            samples["round_trip"].append((time.perf_counter() - start) / rounds)
            assert gpu.result(SECONDS) == rounds
            view(words.address, 4096)[:] = 0
            launch()
            samples["launch_synchronise"].append(timed(lambda: [launch() for _ in range(200)]) / 200)
    return samples


def bandwidth(device: CudaDevice) -> Samples:
    """A kernel reading and writing CPU memory directly, against the pinned copies of the same run."""
    stream = device.stream(CudaStream(device).native)
    direct = {name: device.allocate(name, LARGE, pages) for name, pages in
              (("pinned", "driver"), ("registered", "thp"), ("host-vmm", "driver"))}  # fmt: skip
    copy = device.allocate("copy", LARGE, "driver")
    works: dict[str, Callable[[], Any]] = {
        "copy_to_gpu": lambda: copy.upload(0, LARGE, stream).wait(SECONDS),  # type: ignore[union-attr]
        "copy_to_cpu": lambda: copy.download(0, LARGE, stream).wait(SECONDS),  # type: ignore[union-attr]
    }
    for name, memory in direct.items():
        works[f"read_{name}"] = lambda m=memory: device.gpu.read_passes(m.device_address, LARGE, 1).result(
            SECONDS
        )
        works[f"write_{name}"] = lambda m=memory: device.gpu.fill(m, 0, LARGE, 5, "WA").result(SECONDS)
    samples = interleaved(works, 15)
    for memory in direct.values():
        assert device.cpu.check(memory, 0, LARGE, 5, "RA").result(SECONDS) == 0
        memory.free()
    copy.free()
    return samples


def one_pass(device: CudaDevice) -> dict[str, Samples]:
    """From data ready on the CPU to kernel done, for 1 to 8 passes of the kernel over the data."""
    import torch

    region = device.allocate("registered", LARGE, "thp")
    pinned = device.allocate("copy", LARGE, "driver")
    pageable = np.empty(LARGE // 4, np.uint32)
    stream = device.stream(CudaStream(device).native)
    device.cpu.fill(region, 0, LARGE, 9, "WA")
    pageable[:] = view(region.address, LARGE).view(np.uint32)
    view(pinned.address, LARGE)[:] = pageable.view(np.uint8)
    expected = int(pageable.sum(dtype=np.uint64)) & 0xFFFFFFFF
    tensor = torch.from_numpy(pageable.view(np.int32))

    def run(address: int, passes: int) -> None:
        total = device.gpu.read_passes(address, LARGE, passes).result(SECONDS)
        assert passes > 1 or total & 0xFFFFFFFF == expected

    def by_torch(passes: int) -> None:
        there = tensor.to("cuda")
        run(there.data_ptr(), passes)

    def by_copy(passes: int) -> None:
        pinned.upload(0, LARGE, stream).wait(SECONDS)  # type: ignore[union-attr]
        run(pinned.device_address, passes)

    found = {}
    for passes in (1, 2, 3, 4, 8):
        found[str(passes)] = interleaved(
            {
                "direct": lambda p=passes: run(region.device_address, p),
                "pinned_copy": lambda p=passes: by_copy(p),
                "pageable_to_cuda": lambda p=passes: by_torch(p),
            },
            9,
        )
    return found


def pages(device: CudaDevice) -> Samples:
    """Register 1 GiB and make its pages, each after an uncounted mapping: a host takes free memory back."""
    size, native_driver = 1024 * MIB, driver()
    samples: Samples = {}
    with device.current():
        for _ in range(5):
            for kind in ("4k", "thp"):
                native.map_pages(size, "thp").close()
                start = time.perf_counter()
                mapping = native.map_pages(size, kind)
                samples.setdefault(f"prefault_{kind}", []).append(time.perf_counter() - start)
                start = time.perf_counter()
                check(native_driver.cuMemHostRegister(mapping.address, size, 3), "cuMemHostRegister")
                samples.setdefault(f"register_{kind}", []).append(time.perf_counter() - start)
                check(native_driver.cuMemHostUnregister(mapping.address), "cuMemHostUnregister")
                mapping.close()
                for threads in (1, 4, 8, 16):
                    took = _populate(size, kind, threads)
                    samples.setdefault(f"populate_{kind}_{threads}", []).append(took)
                samples.setdefault(f"touch_{kind}", []).append(_touch(size, kind))
    return samples


def _populate(size: int, kind: str, threads: int) -> float:
    """Map and populate by one call a thread; ctypes lets the others run, Python's mmap.madvise does not."""
    part = size // threads
    native.map_pages(size, "thp").close()
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
    native.map_pages(size, "thp").close()
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


def cpu_reads(device: CudaDevice) -> Samples:
    """The CPU reading what a kernel wrote, against plain memory of the same content."""
    size, part = 64 * MIB, 4 * MIB
    region = device.allocate("pinned", size, "driver")
    combined = device.allocate("pinned-wc", part, "driver")
    device.gpu.fill(region, 0, size, 3, "WA").result(SECONDS)
    device.gpu.fill(combined, 0, part, 3, "WA").result(SECONDS)
    there = view(region.address, size).view(np.uint32)
    slow = view(combined.address, part).view(np.uint32)
    plain, out = there.copy(), np.empty_like(there)
    return interleaved(
        {
            "copy_region": lambda: np.copyto(out, there),
            "copy_plain": lambda: np.copyto(out, plain),
            "strided_sum_region": lambda: there[::16].sum(),
            "strided_sum_plain": lambda: plain[::16].sum(),
            "copy_4MiB_plain": lambda: np.copyto(out[: slow.size], plain[: slow.size]),
            "copy_4MiB_write_combined": lambda: np.copyto(out[: slow.size], slow),
        },
        9,
    )


def locks(device: CudaDevice) -> dict[str, Any]:
    """Per acquisition: one CPU and one GPU thread against each other; increments made and counted."""
    found: dict[str, Any] = {}
    for kind in ("pinned", "managed"):
        for algorithm in device.lock_algorithms():
            lock, counter = device.allocate(kind, 512, "driver"), device.allocate(kind, 128, "driver")
            rounds = 5000
            device.gpu.lock_rounds(lock, counter, 10, algorithm, 1).result(SECONDS)
            view(counter.address, 128)[:] = 0
            start = time.perf_counter()
            gpu = device.gpu.lock_rounds(lock, counter, rounds, algorithm, 1)
            while int(view(counter.address, 4).view(np.uint32)[0]) < 5 and time.perf_counter() - start < 1:
                pass  # the GPU is at work: now both contend
            cpu = device.cpu.lock_rounds(lock, counter, rounds, algorithm, 1)
            done = [cpu.result(SECONDS), gpu.result(SECONDS)]
            elapsed = time.perf_counter() - start
            counted = int(view(counter.address, 4).view(np.uint32)[0])
            found[f"{algorithm}@{kind}"] = {
                "cpu_rounds": done[0], "gpu_rounds": done[1], "counted": counted,
                "exact": counted == sum(done) == 2 * rounds, "s_per_acquisition": elapsed / max(1, sum(done)),
            }  # fmt: skip
            lock.free()
            counter.free()
    return found


def medians(found: Any) -> Any:
    """The same tree with each list of numbers replaced by its median."""
    if isinstance(found, dict):
        return {name: medians(value) for name, value in found.items()}
    if isinstance(found, list) and found and isinstance(found[0], float):
        return statistics.median(found)
    return found


def main() -> None:
    device = open_device("cuda:0")
    assert isinstance(device, CudaDevice)
    found: dict[str, Any] = {
        "command": "python tests/device/figures.py OUT.json",
        "label": "discrete GPU: no unified-memory result",
        "identity": dict(facts_of(device)),
    }
    steps: dict[str, Callable[[], Any]] = {
        "flag": lambda: flag(device),
        "bandwidth_256MiB": lambda: bandwidth(device),
        "data_ready_to_kernel_done_256MiB": lambda: one_pass(device),
        "pages_1GiB": lambda: pages(device),
        "cpu_reads": lambda: cpu_reads(device),
        "locks": lambda: locks(device),
        "cold_file_4GiB": lambda: file_load(4 << 30),
        "cold_file_1GiB": lambda: file_load(1 << 30),
    }
    out, named = Path(sys.argv[1]), sys.argv[2:]
    found |= json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for name, step in steps.items():
        if named and name not in named:
            continue
        start = time.perf_counter()
        try:
            found[name] = step()
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(name, f"[{time.perf_counter() - start:.1f} s]", json.dumps(medians(found[name])), flush=True)
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
