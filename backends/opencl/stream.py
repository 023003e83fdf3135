"""OpenCL queues and events as streams; every wait releases the GIL and has a bound."""

from __future__ import annotations

import time
from typing import Any

from umsh.backends.driver import Event, Stream
from umsh.backends.opencl.loader import ffi, handle, loader
from umsh.backends.opencl.runtime import calling, check_process
from umsh.errors import DeviceError, OutOfMemory, WaitTimeout
from umsh.native import lib

COMPLETE = 0  # CL_COMPLETE
SLICE_S = 0.05  # Python sees an interrupt between two sleeps


def wait_event(event: Any, timeout_s: float) -> None:
    """Block, without polling and the GIL released, until a pyopencl event completes.

    clWaitForEvents has no bound, so the runtime calls back and the waiter sleeps on that.
    WaitTimeout after timeout_s, DeviceError when the work failed.
    """
    status = event.command_execution_status
    if status > 0:
        status = _called_back(event, timeout_s)
    if status < 0:
        raise DeviceError(
            f"Device work ended with OpenCL code {status}.",
            "Its results are not valid.",
            "Check the kernel and its arguments.",
        )


def _called_back(event: Any, timeout_s: float) -> int:
    """The status an event ends with; WaitTimeout."""
    waiter = lib.umsh_event_new()
    if waiter == 0:
        raise OutOfMemory("A waiter of 12 bytes could not be allocated.", "The work goes on.", "Free memory.")
    function = ffi.cast("void *", lib.umsh_event_callback())
    code = loader().clSetEventCallback(handle(event), COMPLETE, function, ffi.cast("void *", waiter))
    if code != 0:
        lib.umsh_event_drop(waiter)  # the runtime's share: it will not call
    try:
        if code != 0:
            raise DeviceError(
                f"clSetEventCallback gave {code}.", "The work cannot be waited for.", "Check the queue."
            )
        end = time.monotonic() + timeout_s
        while lib.umsh_event_wait(waiter, int(min(SLICE_S, end - time.monotonic()) * 1e9)) != 0:
            if time.monotonic() < end:
                continue
            raise WaitTimeout(
                f"Device work was still running after {timeout_s} s.",
                "It goes on; nothing was changed.",
                "Wait again with a longer timeout_s, or look for a kernel that polls.",
            )
        return int(lib.umsh_event_status(waiter))
    finally:
        lib.umsh_event_drop(waiter)


def over(event: Any) -> bool:
    """Whether a pyopencl event's work has ended, well or not."""
    status: int = event.command_execution_status
    return status <= 0


class OpenCLEvent(Event):
    """One pyopencl event."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def done(self) -> bool:
        import pyopencl as cl

        check_process()
        status: int = self.native.command_execution_status
        return status == cl.command_execution_status.COMPLETE

    def wait(self, timeout_s: float) -> None:
        check_process()
        wait_event(self.native, timeout_s)


class OpenCLStream(Stream):
    """One pyopencl command queue: the user's, or the device's own."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def record(self) -> OpenCLEvent:
        import pyopencl as cl

        check_process()
        with calling("clEnqueueMarkerWithWaitList"):
            event = cl.enqueue_marker(self.native)
            self.native.flush()
        return OpenCLEvent(event)

    def wait_event(self, event: Event) -> None:
        import pyopencl as cl

        check_process()
        if not isinstance(event, OpenCLEvent):
            raise DeviceError(
                f"An event of {type(event).__name__} was given to an OpenCL queue.",
                "The queue cannot wait for it.",
                "Wait for it on the CPU first: event.wait(timeout_s).",
            )
        with calling("clEnqueueBarrierWithWaitList"):
            cl.enqueue_barrier(self.native, wait_for=[event.native])
            self.native.flush()

    def synchronize(self, timeout_s: float) -> None:
        self.record().wait(timeout_s)
