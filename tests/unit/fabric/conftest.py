"""Fixtures of the fabric's tests: a modelled server, a fabric on it, and a fake CUDA driver in real time."""

# ruff: noqa: N802, N815  (the driver names its calls so)

from __future__ import annotations

import ctypes
import enum
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from umsh.fabric import Fabric
from umsh.fabric.virtual import VirtualBackend

COPY_BPS = 4e9


@pytest.fixture
def server() -> VirtualBackend:
    return VirtualBackend()


@pytest.fixture
def fabric(server: VirtualBackend) -> Iterator[Fabric]:
    with Fabric(server) as made:
        yield made


class FakeDriver:
    """The handful of driver calls the CUDA backend makes, on host memory.

    A stream is the time at which its work ends; effects happen once that time has passed. `fail` names a call
    that returns an error from then on. `log` keeps the name of every call.
    """

    class CUresult(enum.IntEnum):
        CUDA_SUCCESS = 0
        CUDA_ERROR_INVALID_VALUE = 1
        CUDA_ERROR_NOT_READY = 600
        CUDA_ERROR_LAUNCH_FAILED = 719
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906

    CUmemorytype = enum.IntEnum("CUmemorytype", {"CU_MEMORYTYPE_HOST": 1, "CU_MEMORYTYPE_DEVICE": 2})
    CUpointer_attribute = enum.Enum(
        "CUpointer_attribute",
        [
            f"CU_POINTER_ATTRIBUTE_{name}"
            for name in ("MEMORY_TYPE", "IS_MANAGED", "RANGE_START_ADDR", "RANGE_SIZE", "DEVICE_ORDINAL")
        ],
    )
    CUmemcpySrcAccessOrder = enum.Enum("CUmemcpySrcAccessOrder", ["CU_MEMCPY_SRC_ACCESS_ORDER_STREAM"])
    CUstreamCaptureMode = enum.Enum("CUstreamCaptureMode", ["CU_STREAM_CAPTURE_MODE_RELAXED"])
    CUmemcpyAttributes = type("CUmemcpyAttributes", (), {})
    CUdeviceptr = int

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fail: str | None = None
        self.capturing: set[int] = set()
        self.captured: list[tuple[int, int, int]] = []
        self.batches: list[int] = []
        self._ends: dict[int, float] = {0: 0.0}
        self._events: dict[int, float] = {}
        self._effects: list[tuple[float, int, Callable[[], None]]] = []
        self._memory: list[tuple[int, int, int, Any]] = []
        self._handles = iter(range(100, 10**9))
        self._current = threading.local()
        self._lock = threading.RLock()
        self._now = 0.0

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if not name.startswith("cu"):
            raise AttributeError(name)
        method = getattr(type(self), "_" + name, None)
        if method is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            with self._lock:
                self.log.append(name)
                self._settle()
                if self.fail == name:
                    return (self.CUresult.CUDA_ERROR_LAUNCH_FAILED, None)[: 1 + (name != "cuEventQuery")]
                made: tuple[Any, ...] = method(self, *arguments)
                return made

        return call

    def array(self, nbytes: int, kind: int) -> npt.NDArray[np.uint8]:
        """Memory of a kind (1 pinned, 2 device) that the driver knows."""
        made = np.zeros(nbytes, np.uint8)
        self._memory.append((made.ctypes.data, nbytes, kind, made))
        return made

    def kernel(self, stream: int, seconds: float, effect: Callable[[], None]) -> None:
        """Work on `stream` whose effect shows at its end."""
        with self._lock:
            self._enqueue(stream, seconds, effect)

    def _enqueue(self, stream: int, seconds: float, effect: Callable[[], None]) -> None:
        end = max(time.monotonic(), self._ends.get(stream, 0.0)) + seconds
        self._ends[stream] = end
        self._effects.append((end, next(self._handles), effect))

    def _settle(self) -> None:
        now = self._now = time.monotonic()
        due = sorted(item for item in self._effects if item[0] <= now)
        self._effects = [item for item in self._effects if item[0] > now]
        for _, _, effect in due:
            effect()

    def _ok(self, *values: Any) -> tuple[Any, ...]:
        return (self.CUresult.CUDA_SUCCESS, *values)

    def _cuInit(self, flags: int) -> tuple[Any, ...]:
        return self._ok()

    def _cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        return self._ok(ordinal)

    def _cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return self._ok(7000 + device)

    def _cuCtxGetCurrent(self) -> tuple[Any, ...]:
        return self._ok(getattr(self._current, "context", 0))

    def _cuCtxSetCurrent(self, context: int) -> tuple[Any, ...]:
        self._current.context = context
        return self._ok()

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> tuple[Any, ...]:
        before = getattr(self._current, "mode", "global")
        self._current.mode = mode
        return self._ok(before)

    def _cuStreamGetCtx(self, stream: int) -> tuple[Any, ...]:
        return self._ok(7000)

    def _cuStreamCreateWithPriority(self, flags: int, priority: int) -> tuple[Any, ...]:
        handle = next(self._handles)
        self._ends[handle] = 0.0
        return self._ok(handle)

    def _cuStreamDestroy(self, stream: int) -> tuple[Any, ...]:
        return self._ok()

    def _cuStreamIsCapturing(self, stream: int) -> tuple[Any, ...]:
        return self._ok(int(stream in self.capturing))

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> tuple[Any, ...]:
        self._ends[stream] = max(self._ends[stream], self._events[event])
        return self._ok()

    def _cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        return self._ok(next(self._handles))

    def _cuEventDestroy(self, event: int) -> tuple[Any, ...]:
        return self._ok()

    def _cuEventRecord(self, event: int, stream: int) -> tuple[Any, ...]:
        self._events[event] = self._ends.get(stream, 0.0)
        return self._ok()

    def _cuCtxRecordEvent(self, context: int, event: int) -> tuple[Any, ...]:
        self._events[event] = max(self._ends.values())
        return self._ok()

    def _cuEventQuery(self, event: int) -> tuple[Any, ...]:
        done = self._events[event] <= self._now  # no later than the effects that have shown
        return (self.CUresult.CUDA_SUCCESS if done else self.CUresult.CUDA_ERROR_NOT_READY,)

    def _cuEventSynchronize(self, event: int) -> tuple[Any, ...]:
        return self._ok()

    def _cuEventElapsedTime(self, first: int, last: int) -> tuple[Any, ...]:
        return self._ok((self._events[last] - max(self._events[first], 0.0)) * 1e3 % 1e3 or 1.0)

    def _cuMemAlloc(self, nbytes: int) -> tuple[Any, ...]:
        return self._ok(self.array(nbytes, 2).ctypes.data)

    def _cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        return self._ok(self.array(nbytes, 1).ctypes.data)

    def _cuMemFree(self, address: int) -> tuple[Any, ...]:
        self._memory = [item for item in self._memory if item[0] != address]
        return self._ok()

    _cuMemFreeHost = _cuMemFree

    def _cuMemcpyAsync(self, dst: int, src: int, nbytes: int, stream: int) -> tuple[Any, ...]:
        if stream in self.capturing:
            self.captured.append((dst, src, nbytes))
        else:
            self._enqueue(stream, nbytes / COPY_BPS, lambda: ctypes.memmove(dst, src, nbytes))
        return self._ok()

    def _cuMemcpyBatchAsync(
        self, dsts: list[int], srcs: list[int], sizes: list[int], count: int, *rest: Any
    ) -> tuple[Any, ...]:
        self.batches.append(count)
        for dst, src, nbytes in zip(dsts, srcs, sizes, strict=True):
            self._cuMemcpyAsync(dst, src, nbytes, rest[-1])
        return self._ok()

    def _cuPointerGetAttribute(self, attribute: Any, address: int) -> tuple[Any, ...]:
        for start, nbytes, kind, _ in self._memory:
            if start <= address < start + nbytes:
                name = attribute.name.removeprefix("CU_POINTER_ATTRIBUTE_")
                known = {
                    "MEMORY_TYPE": kind,
                    "IS_MANAGED": 0,
                    "RANGE_START_ADDR": start,
                    "RANGE_SIZE": nbytes,
                }
                return self._ok(known.get(name, 0))
        return (self.CUresult.CUDA_ERROR_INVALID_VALUE, None)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()
