"""Where experiments run: programs are generators; a virtual clock or one thread each drives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Protocol

import numpy as np

from umsh.errors import WaitTimeout
from umsh.fabric.backend import Backend, Event
from umsh.fabric.virtual import VirtualBackend

WAIT_S = 60.0


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

    backend: Backend
    label: str

    def now(self) -> float: ...
    def host(self, nbytes: int) -> int: ...
    def device(self, nbytes: int, device: int = 0) -> int: ...
    def run(self, *programs: Program) -> None:
        """Run all programs side by side until all have ended."""

    def compute(self, stream: Any, seconds: float) -> None:
        """Keep the device's multiprocessors busy on `stream` for about `seconds`."""

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
            self.backend.clock.after(0.0, lambda program=program: go_on(program))
        while left[0] and self.backend.clock.step():
            pass


class RealLab:
    """Programs on a GPU, a thread each; host memory is pinned and filled with a pattern before use."""

    label = "measured"

    def __init__(self, backend: Any) -> None:
        self.backend: Any = backend
        self._burn: Callable[[Any, float], None] | None = None

    def now(self) -> float:
        return time.perf_counter()

    def host(self, nbytes: int) -> int:
        address = int(self.backend.alloc_pinned(nbytes))
        words = self.view(address, nbytes)[: nbytes // 8 * 8].view(np.uint64)
        words[:] = np.arange(len(words), dtype=np.uint64)
        words *= np.uint64(0x9E3779B97F4A7C15)
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

        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)

    def same(self, host: int, device: int, nbytes: int) -> bool:
        """Copies back with the default stream and compares."""
        from umsh.fabric.backend import Segments

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
