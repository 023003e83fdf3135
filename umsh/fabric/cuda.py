"""The CUDA backend: streams, copies and events through the driver API, on primary contexts only."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from umsh.errors import DeviceError, NeedError, UnsupportedError
from umsh.fabric.backend import Pointer, Segments
from umsh.fabric.cuda_capacity import measure

BATCH_FROM = 4
"""Chunks of this many pieces or more go down as one batch call."""
_SPECIAL_STREAMS = (0, 1, 2)  # default, legacy, per-thread: they belong to the current context
_HERE: AbstractContextManager[None] = nullcontext()
_NON_BLOCKING, _DISABLE_TIMING, _PORTABLE_MAPPED = 1, 2, 3


class CudaEvent(NamedTuple):
    """A driver event and the device whose pool it returns to."""

    device: int
    handle: Any


def load_driver() -> ModuleType:
    """The binding; raises `UnsupportedError` naming what is missing."""
    try:
        return import_module("cuda.bindings.driver")
    except ImportError as error:
        raise UnsupportedError(
            f"The CUDA binding is not installed ({error}).",
            "The fabric has no device to schedule for.",
            "Install umsh[cuda12] or umsh[cuda13], or use a VirtualBackend.",
        ) from error


class CudaBackend:
    """A `Backend` on the CUDA driver. Figures from it are *measured*. `driver` may be replaced in tests."""

    label = "measured"

    def __init__(self, driver: Any = None) -> None:
        self._driver = driver if driver is not None else load_driver()
        self._success = self._driver.CUresult.CUDA_SUCCESS
        self._not_ready = self._driver.CUresult.CUDA_ERROR_NOT_READY
        self.call("cuInit", 0)
        self._contexts: dict[int, Any] = {}
        self._pools: dict[int, list[Any]] = {}
        self._stream_devices: dict[int, int] = {}
        self._capacities: dict[str, float] = {}
        self._thread = threading.local()
        self._attributes: Any = None

    def now(self) -> float:
        return time.monotonic()

    def pointer(self, address: int, nbytes: int) -> Pointer:
        names = self._driver.CUpointer_attribute
        self._enter_thread()
        error, kind = self._driver.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        if error == self._driver.CUresult.CUDA_ERROR_INVALID_VALUE:  # the driver does not know the address
            return Pointer("pageable", None, address, nbytes)
        self._check("cuPointerGetAttribute", error)
        if self._attribute("IS_MANAGED", address):
            raise NeedError(
                f"{address:#x} is managed memory, which migrates by itself.",
                "Nothing was copied: which link it crosses is not known beforehand.",
                "Use pinned and device memory for what the fabric shall schedule.",
            )
        on_device = int(kind) == int(self._driver.CUmemorytype.CU_MEMORYTYPE_DEVICE)
        start, size = self._attribute("RANGE_START_ADDR", address), self._attribute("RANGE_SIZE", address)
        device = int(self._attribute("DEVICE_ORDINAL", address)) if on_device else None
        return Pointer("device" if on_device else "pinned", device, int(start), int(size))

    def stream(self, given: object) -> int:
        protocol = getattr(given, "__cuda_stream__", None)
        if protocol is not None:
            return int(protocol()[1] if callable(protocol) else protocol[1])
        for name in ("cuda_stream", "ptr", "handle"):
            if hasattr(given, name):
                return int(getattr(given, name))
        return int(given)  # type: ignore[call-overload, no-any-return]

    def current_stream(self, owner: object) -> int | None:
        module = type(owner).__module__.partition(".")[0]
        if module == "torch":
            torch = import_module("torch")
            return int(torch.cuda.current_stream().cuda_stream) if torch.cuda.is_available() else None
        if module == "cupy":
            return int(import_module("cupy").cuda.get_current_stream().ptr)
        return None

    def open_stream(self, device: int, priority: int = 0) -> int:
        with self.on(device):
            handle = int(self.call("cuStreamCreateWithPriority", _NON_BLOCKING, priority))
        self._stream_devices[handle] = device
        return handle

    def close_stream(self, stream: int) -> None:
        with self.on(self._stream_devices.pop(stream)):
            self.call("cuStreamDestroy", stream)

    def capturing(self, stream: int) -> bool:
        self._enter_thread()
        error, status = self._driver.cuStreamIsCapturing(stream)
        if error == self._driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
            return False  # some other stream is being captured; the default stream itself never is
        self._check("cuStreamIsCapturing", error)
        return int(status) != 0

    def copy(self, link: str, stream: int, segments: Segments) -> None:
        with self.on(self._device_of(stream)):
            if len(segments.sizes) >= BATCH_FROM and stream not in _SPECIAL_STREAMS:
                self._copy_batch(stream, segments)
                return
            for dst, src, nbytes in zip(*segments, strict=True):
                self.call("cuMemcpyAsync", dst, src, nbytes, stream)

    def record(self, stream: int) -> CudaEvent:
        device = self._device_of(stream)
        with self.on(device):
            event = self._new_event(device)
            self.call("cuEventRecord", event.handle, stream)
        return event

    def record_device(self, device: int) -> CudaEvent:
        if not hasattr(self._driver, "cuCtxRecordEvent"):
            raise UnsupportedError(
                "This CUDA binding has no cuCtxRecordEvent (CUDA 12.5).",
                "Without it, a copy with no stream cannot be ordered after all work of the device.",
                "Pass stream=, or ordered=False where both ends are quiet.",
            )
        with self.on(device):
            event = self._new_event(device)
            self.call("cuCtxRecordEvent", self._context(device), event.handle)
        return event

    def done(self, event: CudaEvent) -> bool:
        self._enter_thread()
        (error,) = self._driver.cuEventQuery(event.handle)
        if error == self._not_ready:
            return False
        self._check("cuEventQuery", error)
        return True

    def free_event(self, event: CudaEvent) -> None:
        self._pools.setdefault(event.device, []).append(event.handle)

    def wait_event(self, stream: int, event: CudaEvent) -> None:
        with self.on(self._device_of(stream)):
            self.call("cuStreamWaitEvent", stream, event.handle, 0)

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        # Under a capture in global mode an event query of any other thread ends the capture with an error.
        self._enter_thread()
        modes = self._driver.CUstreamCaptureMode
        before = self.call("cuThreadExchangeStreamCaptureMode", modes.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", before)

    def capacity_bps(self, link: str) -> float:
        """Measured once a process: see `measure`."""
        if link not in self._capacities:
            self._capacities[link] = measure(self, link)
        return self._capacities[link]

    def alloc_pinned(self, nbytes: int) -> int:
        with self.on(0):
            return int(self.call("cuMemHostAlloc", nbytes, _PORTABLE_MAPPED))

    def free_pinned(self, address: int) -> None:
        with self.on(0):
            self.call("cuMemFreeHost", address)

    def alloc_device(self, nbytes: int, device: int) -> int:
        with self.on(device):
            return int(self.call("cuMemAlloc", nbytes))

    def free_device(self, address: int, device: int) -> None:
        with self.on(device):
            self.call("cuMemFree", address)

    def host_copy(self, dst: int, src: int, nbytes: int) -> None:
        ctypes.memmove(dst, src, nbytes)

    def _copy_batch(self, stream: int, segments: Segments) -> None:
        driver = self._driver
        if self._attributes is None:
            self._attributes = driver.CUmemcpyAttributes()
            # Any other source order lets the engine read before the producer has written (vllm#46278).
            self._attributes.srcAccessOrder = driver.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        dsts, srcs = ([driver.CUdeviceptr(address) for address in side] for side in segments[:2])
        self.call(
            "cuMemcpyBatchAsync", dsts, srcs, segments.sizes, len(dsts), [self._attributes], [0], 1, stream
        )

    def attribute(self, device: int, name: str) -> int:
        """A device attribute by the driver's name for it."""
        names = self._driver.CUdevice_attribute
        handle = self.call("cuDeviceGet", device)
        return int(self.call("cuDeviceGetAttribute", getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

    def _attribute(self, name: str, address: int) -> Any:
        attribute = getattr(self._driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        return self.call("cuPointerGetAttribute", attribute, address)

    def _new_event(self, device: int) -> CudaEvent:
        pool = self._pools.setdefault(device, [])
        return CudaEvent(device, pool.pop() if pool else self.call("cuEventCreate", _DISABLE_TIMING))

    def _device_of(self, stream: int) -> int:
        device = self._stream_devices.get(stream)
        if device is None:
            self._enter_thread()
            context = self.call("cuCtxGetCurrent")
            if stream not in _SPECIAL_STREAMS:
                context = self.call("cuStreamGetCtx", stream)
            device = next((d for d, known in self._contexts.items() if int(known) == int(context)), None)
            if device is None:
                raise NeedError(
                    f"Stream {stream:#x} belongs to a context the fabric does not use.",
                    "Nothing was copied.",
                    "Use streams of the device's primary context (all frameworks do).",
                )
            # Callers' streams are not remembered: a handle may be destroyed and come again elsewhere.
        return device

    def _context(self, device: int) -> Any:
        if device not in self._contexts:
            self._contexts[device] = self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", device))
        return self._contexts[device]

    def _enter_thread(self) -> None:
        """Give a thread that has no context device 0's; leave every other thread as it is."""
        if getattr(self._thread, "entered", False):
            return
        context = self._context(0)
        if int(self.call("cuCtxGetCurrent")) == 0:
            self.call("cuCtxSetCurrent", context)
        self._thread.entered = True

    def on(self, device: int) -> AbstractContextManager[None]:
        """Make the device's context current inside the block, and put the caller's back."""
        self._enter_thread()
        if len(self._contexts) == 1 and device in self._contexts:
            return _HERE  # the only context there is: every thread that came here has it
        return self._switched(self._context(device))

    @contextmanager
    def _switched(self, context: Any) -> Iterator[None]:
        if int(self.call("cuCtxGetCurrent")) == int(context):
            yield
            return
        self.call("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    def call(self, name: str, *arguments: Any) -> Any:
        """One driver call; returns its value, raises `DeviceError` with its error's name."""
        error, *values = getattr(self._driver, name)(*arguments)
        self._check(name, error)
        return values[0] if values else None

    def _check(self, name: str, error: Any) -> None:
        if error != self._success:
            raise DeviceError(
                f"{name} failed with {getattr(error, 'name', error)}.",
                "The operation did not happen.",
                "A sticky error means that the process must be restarted; see the driver's log.",
            )
