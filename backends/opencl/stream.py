"""OpenCL queues and events as streams; every wait releases the GIL and has a bound."""

from __future__ import annotations

import time
from typing import Any

from umsh.backends.driver import Event, Stream
from umsh.backends.opencl.runtime import calling, check_process
from umsh.errors import DeviceError, WaitTimeout

YIELDS = 200  # short waits stay with sched_yield; longer ones sleep a fraction of what has passed
SLEEP_MAX_S = 1e-3


def wait_event(event: Any, timeout_s: float) -> None:
    """Block until a pyopencl event completes. WaitTimeout after timeout_s, DeviceError when it failed."""
    import pyopencl as cl

    start = time.monotonic()
    tries = 0
    while (status := event.command_execution_status) != cl.command_execution_status.COMPLETE:
        if status < 0:
            raise DeviceError(
                f"Device work ended with OpenCL code {status}.", "Its results are not valid.", "Check the kernel."
            )
        passed = time.monotonic() - start
        if passed >= timeout_s:
            raise WaitTimeout(
                f"Device work was still running after {timeout_s} s.",
                "It goes on; nothing was changed.",
                "Wait again with a longer timeout_s, or look for a kernel that polls.",
            )
        tries += 1
        time.sleep(0 if tries < YIELDS else min(SLEEP_MAX_S, passed / 16, timeout_s - passed))


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
