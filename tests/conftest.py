"""Devices for tests: the real one, or a made-up one whose work the test finishes by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umsh
from umsh import backends, choice, resolve
from umsh.backends.driver import Device, Event, Memory, Stream
from umsh.errors import AdoptError, DeviceError, WaitTimeout
from umsh.mechanism import Backing, MemoryKind


class FakeEvent(Event):
    def __init__(self, finish: Callable[[], None] = lambda: None) -> None:
        self._finish = finish
        self.is_done = False

    def complete(self) -> None:
        if not self.is_done:
            self._finish()
        self.is_done = True

    def done(self) -> bool:
        return self.is_done

    def wait(self, timeout_s: float) -> None:
        if not self.is_done:
            raise WaitTimeout("The made-up work is not done.")


class FakeStream(Stream):
    """Work completes at once, or when the test says so (`held`)."""

    def __init__(self, held: bool = False) -> None:
        self.native = self
        self.held = held
        self.events: list[FakeEvent] = []
        self.waited_for: list[Event] = []

    def record(self, finish: Callable[[], None] = lambda: None) -> FakeEvent:
        event = FakeEvent(finish)
        if self.held:
            self.events.append(event)
        else:
            event.complete()
        return event

    def complete(self) -> None:
        for event in self.events:
            event.complete()

    def wait_event(self, event: Event) -> None:
        self.waited_for.append(event)

    def synchronize(self, timeout_s: float) -> None:
        self.record().wait(timeout_s)


class FakeMemory(Memory):
    """CPU bytes, and for "copy" a second array that stands for device memory."""

    def __init__(self, device: FakeDevice, kind: MemoryKind, cpu: Any) -> None:
        self.kind = kind
        self.keep = cpu
        self.cpu = cpu.view("u1").reshape(-1)
        self.gpu = self.cpu.copy() if kind.name == "copy" else self.cpu
        self.address = self.cpu.ctypes.data
        self.device_address = self.gpu.ctypes.data
        self.kernel_arg = self
        self.nbytes = self.cpu.nbytes
        self.backing = Backing("driver", 0, self.nbytes, 0, "driver")
        self.device = device
        self.freed = 0

    def upload(self, offset: int, nbytes: int, stream: Any) -> Event | None:
        return self._copy(self.gpu, self.cpu, slice(offset, offset + nbytes), stream)

    def download(self, offset: int, nbytes: int, stream: Any) -> Event | None:
        return self._copy(self.cpu, self.gpu, slice(offset, offset + nbytes), stream)

    def _copy(self, target: Any, source: Any, part: slice, stream: Any) -> Event | None:
        if target is source:
            return None
        return stream.record(lambda: target.__setitem__(part, source[part]))  # type: ignore[no-any-return]

    def free(self) -> None:
        self.freed += 1
        self.device.freed.append(self)
        self.keep = self.cpu = self.gpu = None


class FakeAgent:
    def methods(self) -> Mapping[str, str]:
        return {"WA": "", "WF": "", "WBp": "", "copy": "", "RA": "", "RI": "", "RB": "the fact it lacks"}

    def pollers_max(self, level: str) -> int:
        return {"thread": 64, "block": 4096, "kernel": 65536}.get(level, 0)


class FakeDevice(Device):
    """Kinds: pinned (documented), fast (works, not documented), gone (absent), copy."""

    driver = "fake"
    index = 0
    name = "made-up device"

    def __init__(self) -> None:
        self.cpu = self.gpu = FakeAgent()  # type: ignore[assignment]
        self.own = FakeStream()
        self.freed: list[FakeMemory] = []
        self.kinds = (
            MemoryKind("pinned", ("driver",), "WB", "WB", "two-way", True, True),
            MemoryKind("fast", ("4k", "thp"), "WB", "WB", "two-way", False, False),
            MemoryKind("gone", ("4k",), "WB", "WB", "none", True, True, absent="attribute 7 is 0"),
            MemoryKind("copy", ("4k",), "WB", "?", "none", True, False),
        )

    def facts(self) -> Mapping[str, Any]:
        return {"driver_version": "7.1"}

    def memory_kinds(self) -> tuple[MemoryKind, ...]:
        return self.kinds

    def allocate(self, kind: str, nbytes: int, pages: str, shared: bool = False) -> Memory:
        found = {k.name: k for k in self.kinds}[kind]
        return FakeMemory(self, found, np.zeros(nbytes + 512, "u1")[-nbytes - 512 :][:nbytes])

    def adopt(self, kind: str, address: int, nbytes: int, keep: Any) -> Memory:
        if kind == "pinned":
            raise AdoptError("Pinned memory is never taken over.", "Nothing was bound.")
        return FakeMemory(self, {k.name: k for k in self.kinds}[kind], keep)

    def attach(self, handle: Mapping[str, Any]) -> Memory:
        raise DeviceError("The owner is gone.", "Nothing was mapped.", "")

    def stream(self, native: object | None = None) -> Any:
        return native if isinstance(native, FakeStream) else self.own

    def memory_info(self) -> tuple[int, int, str]:
        return 1 << 30, 1 << 31, "made up"

    def clock_ns(self) -> int:
        return 0

    def lock_algorithms(self) -> Mapping[str, str]:
        return {"cas": "no atomics across the link", "ticket": "", "peterson": ""}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No test sees the choice of the user who runs it, or leaves one behind."""
    monkeypatch.setattr(choice, "own_folder", lambda device: tmp_path / "cache" / device.driver)
    monkeypatch.delenv(resolve.ENVIRONMENT, raising=False)
    monkeypatch.setattr(resolve, "_warned", set())
    resolve.forget()
    yield
    resolve.forget()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Every device that umsh opens in this test is the made-up one."""
    device = FakeDevice()
    monkeypatch.setattr(backends, "open_device", lambda which=0: device)
    return device


@pytest.fixture
def held_stream() -> FakeStream:
    """A stream of the made-up device whose work waits for complete()."""
    return FakeStream(held=True)


@pytest.fixture(scope="session")
def device() -> Any:
    """The real OpenCL device; skips with the driver's reason where there is none."""
    try:
        return backends.open_device("opencl:0")
    except umsh.errors.DeviceError as error:
        pytest.skip(f"no OpenCL device: {error}")


@pytest.fixture
def fork() -> Callable[[Callable[[], object]], str]:
    """Run a function in a forked child; what it printed as "type: text" of its exception, or "ok"."""

    def run(body: Callable[[], object]) -> str:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                body()
                told = "ok"
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            os.write(writer, told.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            told = pipe.read().decode()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return told

    return run
