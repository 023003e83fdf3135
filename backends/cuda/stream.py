"""CUDA streams and events; every wait releases the GIL and has a bound."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from umsh.backends.cuda.calls import NOT_READY, check, check_process, driver, forked
from umsh.backends.driver import Event, Stream
from umsh.errors import DeviceError, WaitTimeout

if TYPE_CHECKING:
    from umsh.backends.cuda.device import CudaDevice

SPIN_S = 200e-6  # hand-overs are mostly shorter; beyond it, sleep a fraction of what has passed
SLEEP_S_MAX = 1e-3
CONTEXT_EVENTS_VERSION_MIN = 12050  # cuCtxRecordEvent and cuCtxWaitEvent
# How libraries name the handle of their stream: PyTorch, CuPy, numba-cuda.
HANDLE_NAMES = ("cuda_stream", "ptr", "handle")


class CudaEvent(Event):
    """A point in a stream's work, or in all of the device's."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        native = driver()
        flags = native.CUevent_flags.CU_EVENT_DISABLE_TIMING
        with device.current():
            (self.native,) = check(native.cuEventCreate(flags), "cuEventCreate")

    def done(self) -> bool:
        check_process()
        (code,) = driver().cuEventQuery(self.native)
        if int(code) == NOT_READY:
            return False
        check((code,), "device work before an event")
        return True

    def wait(self, timeout_s: float) -> None:
        start = time.monotonic()
        while not self.done():
            passed = time.monotonic() - start
            if passed >= timeout_s:
                raise still_running(timeout_s)
            time.sleep(0 if passed < SPIN_S else min(SLEEP_S_MAX, passed / 16, timeout_s - passed))

    def __del__(self) -> None:
        native = getattr(self, "native", None)
        if native is not None and not forked():
            driver().cuEventDestroy(native)


class CudaStream(Stream):
    """One stream of this device's context: the user's, or one of our own."""

    def __init__(self, device: CudaDevice, native: object | None = None) -> None:
        self._device = device
        if native is None:
            flags = driver().CUstream_flags.CU_STREAM_NON_BLOCKING
            with device.current():
                (native,) = check(driver().cuStreamCreate(flags), "cuStreamCreate")
            self.native = native
        else:
            self.native = driver().CUstream(handle_of(native))

    def record(self) -> CudaEvent:
        check_process()
        event = CudaEvent(self._device)
        with self._device.current():
            check(driver().cuEventRecord(event.native, self.native), "cuEventRecord")
        return event

    def wait_event(self, event: Event) -> None:
        check_process()
        with self._device.current():
            check(driver().cuStreamWaitEvent(self.native, native_of(event), 0), "cuStreamWaitEvent")

    def synchronize(self, timeout_s: float) -> None:
        self.record().wait(timeout_s)


class WholeDevice(Stream):
    """The order of all the context's streams at once: what is safe when the user names no stream."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self.native = None
        (version,) = check(driver().cuDriverGetVersion(), "cuDriverGetVersion")
        self._events = version >= CONTEXT_EVENTS_VERSION_MIN

    def record(self) -> CudaEvent:
        check_process()
        event = CudaEvent(self._device)
        with self._device.current():
            if self._events:
                check(driver().cuCtxRecordEvent(self._device.context, event.native), "cuCtxRecordEvent")
            else:
                check(driver().cuCtxSynchronize(), "cuCtxSynchronize")
        return event

    def wait_event(self, event: Event) -> None:
        check_process()
        native = native_of(event)
        if self._events:
            check(driver().cuCtxWaitEvent(self._device.context, native), "cuCtxWaitEvent")
        else:
            check(driver().cuEventSynchronize(native), "cuEventSynchronize")

    def synchronize(self, timeout_s: float) -> None:
        """cuCtxSynchronize has no bound of its own: it runs in a thread that is left behind on timeout."""
        check_process()
        ended: list[tuple[Any, ...]] = []

        def run() -> None:
            with self._device.current():
                ended.append(driver().cuCtxSynchronize())

        thread = threading.Thread(target=run, name="umsh-synchronise", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            raise still_running(timeout_s)
        check(ended[0], "cuCtxSynchronize")


def handle_of(stream: object) -> int:
    """The CUstream handle of an int, of a __cuda_stream__ object, or of a PyTorch, CuPy or numba stream."""
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version_and_handle = protocol() if callable(protocol) else protocol
        return int(version_and_handle[1])
    for name in HANDLE_NAMES:
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    raise DeviceError(
        f"stream={stream!r} is no CUDA stream.",
        "Nothing was ordered.",
        "Pass a handle, or a stream of PyTorch, CuPy, numba-cuda or cuda.core.",
    )


def native_of(event: Event) -> Any:
    """The CUevent of an event of this driver; DeviceError for another driver's."""
    if not isinstance(event, CudaEvent):
        raise DeviceError(
            f"An event of {type(event).__name__} was given to a CUDA stream.",
            "The stream cannot wait for it.",
            "Wait for it on the CPU first: event.wait(timeout_s).",
        )
    return event.native


def still_running(timeout_s: float) -> WaitTimeout:
    return WaitTimeout(
        f"Device work was still running after {timeout_s} s.",
        "It goes on and may still touch its regions; nothing was changed.",
        "Wait again with a longer timeout_s. A kernel that never returns cannot be stopped from here: "
        "only ending this process frees the device.",
    )
