"""What umsh-run --check prints: the remote devices, and how long calls and copies take from here."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from rich.console import Console
from rich.table import Table

from umsh.errors import DeviceError

COPY_NBYTES = 16 << 20
ROUND_TRIPS = 50
FAILED = 1
CALLS_SENT = 10_000


class Driver:
    """The client library's calls that this check makes. A failed call is a DeviceError that names it."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(
                f"The client library was not found: {error}.", "There is no remote GPU.", "Use umsh-run."
            ) from error

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise DeviceError(f"{name} returned {result}.", "There is no remote GPU.")


def seconds(work: Callable[[], None], repeats: int = 1) -> float:
    """Median seconds of one run."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def devices(driver: Driver) -> list[tuple[str, int]]:
    """Name and bytes of memory of each."""
    count, found = c_int(), []
    driver.call("cuInit", 0)
    driver.call("cuDeviceGetCount", byref(count))
    for index in range(count.value):
        name, nbytes = ctypes.create_string_buffer(256), c_size_t()
        driver.call("cuDeviceGetName", name, 256, index)
        driver.call("cuDeviceTotalMem_v2", byref(nbytes), index)
        found.append((name.value.decode("utf-8", "replace"), nbytes.value))
    return found


def timings(driver: Driver) -> list[tuple[str, str]]:
    """Measured on device 0: what was done, and how long it took or how fast it was."""
    context, address = c_void_p(), c_uint64()
    driver.call("cuDevicePrimaryCtxRetain", byref(context), 0)
    driver.call("cuCtxSetCurrent", context)
    driver.call("cuMemAlloc_v2", byref(address), c_size_t(COPY_NBYTES))
    data = ctypes.create_string_buffer(COPY_NBYTES)

    def down(nbytes: int) -> None:
        driver.call("cuMemcpyDtoH_v2", data, address, c_size_t(nbytes))

    def up(nbytes: int) -> None:
        driver.call("cuMemcpyHtoD_v2", address, data, c_size_t(nbytes))

    def up_and_wait() -> None:
        up(COPY_NBYTES)
        down(4)

    def many() -> None:
        for _ in range(CALLS_SENT):
            up(4)

    down(4)
    round_trip = seconds(lambda: down(4), ROUND_TRIPS)
    rows = [
        ("round trip (4 bytes to the host)", f"{round_trip * 1e6:.0f} us"),
        ("call that is not waited for, from Python", f"{seconds(many) / CALLS_SENT * 1e6:.2f} us"),
        ("to the device", f"{COPY_NBYTES / (seconds(up_and_wait, 3) - round_trip) / 1e6:.0f} MB/s"),
        ("to the host", f"{COPY_NBYTES / seconds(lambda: down(COPY_NBYTES), 3) / 1e6:.0f} MB/s"),
    ]
    driver.call("cuMemFree_v2", address)
    return rows


def main() -> int:
    out = Console()
    try:
        driver = Driver()
        for name, nbytes in devices(driver):
            out.print(f"{name}: {nbytes / 1e9:.1f} GB", highlight=False)
        table = Table("measured from here", "value")
        for row in timings(driver):
            table.add_row(*row)
        out.print(table)
    except DeviceError as error:
        Console(stderr=True).print(f"umsh-run: {error}", highlight=False)
        return FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
