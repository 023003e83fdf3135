"""The figures of the CUDA driver, side by side in one run: `python tests/device/figures.py OUT.json`.

Medians of interleaved repetitions with every sample kept; data is verified. Times are wall clock from
the call to the completed event, in seconds, unless the name says otherwise.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
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

MIB = 1 << 20
LARGE = 256 * MIB
FILE_NBYTES = 4096 * MIB
HEADER = 8  # a safetensors file starts with the size of its header
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
    """Prefault and register 1 GiB on 4 KB pages and on huge pages."""
    size, samples = (
        1024 * MIB,
        {f"{step}_{kind}": [] for kind in ("4k", "thp") for step in ("prefault", "register")},
    )
    native_driver = driver()
    with device.current():
        for _ in range(5):
            for kind in ("4k", "thp"):
                start = time.perf_counter()
                mapping = native.map_pages(size, kind)
                samples[f"prefault_{kind}"].append(time.perf_counter() - start)
                register = lambda a=mapping.address: check(
                    native_driver.cuMemHostRegister(a, size, 3), "register"
                )  # noqa: E731
                samples[f"register_{kind}"].append(timed(register))
                check(native_driver.cuMemHostUnregister(mapping.address), "cuMemHostUnregister")
                mapping.close()
    return samples


def cpu_reads(device: CudaDevice) -> Samples:
    """The CPU reading what a kernel wrote: the default memory, plain memory, and write-combined for contrast."""
    size = 64 * MIB
    region, combined = (
        device.allocate("pinned", size, "driver"),
        device.allocate("pinned-wc", 4 * MIB, "driver"),
    )
    device.gpu.fill(region, 0, size, 3, "WA").result(SECONDS)
    there, plain = view(region.address, size).view(np.float32), np.zeros(size // 4, np.float32)
    out = np.empty_like(plain)
    slow = view(combined.address, 4 * MIB).view(np.float32)
    with np.errstate(all="ignore"):
        return interleaved(
            {
                "copy_region": lambda: np.copyto(out, there),
                "copy_plain": lambda: np.copyto(out, plain),
                "strided_sum_region": lambda: there[::16].sum(),
                "strided_sum_plain": lambda: plain[::16].sum(),
                "copy_write_combined_per_16th": lambda: np.copyto(out[: slow.size], slow),
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
    report = native.read_file(path, memory.address, size - header, header)
    device.gpu.gather(memory, 4096, 1, 4096, "RA").result(60)
    told = str(report)
elif how == "disk":
    mapping = native.map_pages(size - header, "thp")
    start = time.perf_counter()
    told = str(native.read_file(path, mapping.address, size - header, header))
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
        for _ in range(3):
            for how, samples in found.items():
                told = subprocess.run(
                    [sys.executable, "-c", LOAD, str(path), how], capture_output=True, text=True, timeout=120
                )
                if told.returncode:
                    raise RuntimeError(told.stderr)
                elapsed, peak, size, note = told.stdout.split()
                samples.append(
                    {"s": float(elapsed), "peak_ratio": int(peak) / int(size), "note": note.replace("_", " ")}
                )
    return found


def _write(path: Path) -> None:
    count, each = 16, FILE_NBYTES // 16
    table = {f"t{i}": {"dtype": "U8", "shape": [each], "data_offsets": [i * each, (i + 1) * each]}
             for i in range(count)}  # fmt: skip
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    block = np.random.default_rng(1).bytes(64 * MIB)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(HEADER, "little") + header)
        for _ in range(FILE_NBYTES // len(block)):
            file.write(block)
        file.flush()
        import os

        os.fsync(file.fileno())


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
        "identity": {name: value for name, value in facts_of(device).items()},
    }
    steps: dict[str, Callable[[], Any]] = {
        "flag": lambda: flag(device),
        "bandwidth_256MiB": lambda: bandwidth(device),
        "data_ready_to_kernel_done_256MiB": lambda: one_pass(device),
        "pages_1GiB": lambda: pages(device),
        "cpu_reads": lambda: cpu_reads(device),
        "locks": lambda: locks(device),
        "cold_file_4GiB": file_load,
    }
    for name, step in steps.items():
        start = time.perf_counter()
        try:
            found[name] = step()
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(name, f"[{time.perf_counter() - start:.1f} s]", json.dumps(medians(found[name])), flush=True)
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
