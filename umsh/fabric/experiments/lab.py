"""Where experiments run: programs are generators; a virtual clock or one thread each drives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

import numpy as np

from umsh.errors import WaitTimeout
from umsh.fabric.backend import Backend, Event, Segments
from umsh.fabric.sm_copier import SmCopier
from umsh.fabric.virtual import VirtualBackend

WAIT_S = 60.0
TILE_NBYTES = 64 << 20
"""Length after which the contents of real memory repeat."""
SAMPLE_NBYTES = 64 << 10
KERNEL_BLOCKS = 32
"""Enough for a copy kernel to fill the link, as a network card would."""
KERNEL_NBYTES_MAX = 128 << 20


class Ticket(Protocol):
    """Anything that ends: a `Transfer`, or a raw copy."""

    def wait(self, timeout_s: float | None = WAIT_S) -> Any: ...
    def add_done_callback(self, callback: Callable[[Any], object]) -> None: ...


Program = Generator["float | Ticket", None, None]
"""Yields seconds to sleep, or a ticket to wait for."""


class RawTicket:
    """A copy made with streams and events alone."""

    def __init__(self, backend: Backend, event: Event) -> None:
        self._backend, self._event = backend, event

    def wait(self, timeout_s: float | None = WAIT_S) -> None:
        deadline = time.monotonic() + (WAIT_S if timeout_s is None else timeout_s)
        while not self._backend.done(self._event):
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    "A raw copy did not end.", "The experiment stops.", "See whether the device hangs."
                )
            time.sleep(0)

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        if self._event.done:
            callback(self)
        else:
            self._event.waiters.append(lambda: callback(self))


class Lab(Protocol):
    """A place to run programs. `label` is modelled or measured."""

    label: str

    @property
    def backend(self) -> Backend: ...
    def now(self) -> float: ...
    def host(self, nbytes: int) -> int: ...
    def device(self, nbytes: int, device: int = 0) -> int: ...
    def run(self, *programs: Program) -> None:
        """Run all programs side by side until all have ended."""

    def compute(self, stream: Any, seconds: float) -> None:
        """Keep the device's multiprocessors busy on `stream` for about `seconds`."""

    def kernel_copy(self, stream: Any, link: str, nbytes: int) -> None:
        """Move `nbytes` over `link` with a kernel on `stream`, past the copy engine."""

    def fill_device(self, device: int, nbytes: int) -> None:
        """Give device memory the contents of host memory."""

    def poison(self, host: int, nbytes: int) -> None:
        """Spoil a byte every `SAMPLE_NBYTES` of host memory."""

    def intact(self, host: int, nbytes: int) -> bool:
        """True if those bytes hold again what `host` and `fill_device` put there."""

    def same(self, host: int, device: int, nbytes: int) -> bool:
        """True if both places hold the same bytes."""


class VirtualLab:
    """Programs on the modelled server; memory has no contents."""

    label = "modelled"

    def __init__(self, backend: VirtualBackend | None = None) -> None:
        self.backend: VirtualBackend = backend or VirtualBackend()

    def now(self) -> float:
        return self.backend.now()

    def host(self, nbytes: int) -> int:
        return self.backend.alloc("pinned", nbytes).ptr

    def device(self, nbytes: int, device: int = 0) -> int:
        return self.backend.alloc("device", nbytes, device).ptr

    def compute(self, stream: Any, seconds: float) -> None:
        self.backend.kernel(stream, seconds)

    def kernel_copy(self, stream: Any, link: str, nbytes: int) -> None:
        self.backend.sm_copy(stream, link, nbytes)

    def fill_device(self, device: int, nbytes: int) -> None:
        return None

    def poison(self, host: int, nbytes: int) -> None:
        return None

    def intact(self, host: int, nbytes: int) -> bool:
        return True

    def same(self, host: int, device: int, nbytes: int) -> bool:
        return True  # exactness in the model is the tests' matter

    def run(self, *programs: Program) -> None:
        left = [len(programs)]

        def go_on(program: Program) -> None:
            try:
                what = next(program)
            except StopIteration:
                left[0] -= 1
                return
            if isinstance(what, int | float):
                self.backend.clock.after(float(what), lambda: go_on(program))
            else:
                what.add_done_callback(lambda _: self.backend.clock.after(0.0, lambda: go_on(program)))

        for program in programs:
            self.backend.clock.after(0.0, partial(go_on, program))
        while left[0] and self.backend.clock.step():
            pass


class RealLab:
    """Programs on a GPU, a thread each; host memory is pinned and filled with a pattern before use."""

    label = "measured"

    def __init__(self, backend: Any) -> None:
        self.backend: Any = backend
        self._burn: Callable[[Any, float], None] | None = None
        self._copier: SmCopier | None = None
        self._tile = np.random.default_rng(7).integers(1, 256, TILE_NBYTES, np.uint8)

    def now(self) -> float:
        return time.perf_counter()

    def host(self, nbytes: int) -> int:
        address = int(self.backend.alloc_pinned(nbytes))
        view = self.view(address, nbytes)
        for at in range(0, nbytes, TILE_NBYTES):
            view[at : at + TILE_NBYTES] = self._tile[: min(TILE_NBYTES, nbytes - at)]
        return address

    def device(self, nbytes: int, device: int = 0) -> int:
        return int(self.backend.alloc_device(nbytes, device))

    def compute(self, stream: Any, seconds: float) -> None:
        if self._burn is None:
            from umsh.fabric.experiments.burn import matrix_burner

            self._burn = matrix_burner()
        self._burn(stream, seconds)

    def view(self, address: int, nbytes: int) -> Any:
        import ctypes

        buffer: Any = (ctypes.c_uint8 * nbytes).from_address(address)
        return np.frombuffer(buffer, np.uint8)

    def kernel_copy(self, stream: Any, link: str, nbytes: int) -> None:
        if self._copier is None:
            self._copier = SmCopier(self.backend, blocks=KERNEL_BLOCKS)
            self._ends = self.host(KERNEL_NBYTES_MAX), self.device(KERNEL_NBYTES_MAX)
        host, device = self._ends
        dst, src = (device, host) if link.startswith("h2d") else (host, device)
        self._copier.copy(dst, src, min(nbytes, KERNEL_NBYTES_MAX), stream)

    def fill_device(self, device: int, nbytes: int) -> None:
        host = self.host(min(nbytes, TILE_NBYTES))
        stream = self.backend.open_stream(0)
        for at in range(0, nbytes, TILE_NBYTES):
            step = min(TILE_NBYTES, nbytes - at)
            self.backend.copy("h2d:0", stream, Segments([device + at], [host], [step]))
        RawTicket(self.backend, self.backend.record(stream)).wait()
        self.backend.free_pinned(host)

    def poison(self, host: int, nbytes: int) -> None:
        self.view(host, nbytes)[::SAMPLE_NBYTES] = 0

    def intact(self, host: int, nbytes: int) -> bool:
        expected = self._tile[np.arange(0, nbytes, SAMPLE_NBYTES) % TILE_NBYTES]
        return bool((self.view(host, nbytes)[::SAMPLE_NBYTES] == expected).all())

    def same(self, host: int, device: int, nbytes: int) -> bool:
        """Copies back and compares."""
        back = int(self.backend.alloc_pinned(nbytes))
        stream = self.backend.open_stream(0)
        self.backend.copy("d2h:0", stream, Segments([back], [device], [nbytes]))
        RawTicket(self.backend, self.backend.record(stream)).wait()
        equal = bool((self.view(back, nbytes) == self.view(host, nbytes)).all())
        self.backend.free_pinned(back)
        return equal

    def run(self, *programs: Program) -> None:
        failed: list[BaseException] = []

        def drive(program: Program) -> None:
            try:
                for what in program:
                    if isinstance(what, int | float):
                        time.sleep(max(0.0, float(what)))
                    else:
                        what.wait()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=drive, args=(program,)) for program in programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
