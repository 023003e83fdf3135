"""Driver `opencl`: CPU devices (PoCL, Intel) and Intel GPUs, through pyopencl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umsh.errors import DeviceError

if TYPE_CHECKING:
    from umsh.backends.opencl.device import OpenCLDevice


def open_device(which: int | str = 0) -> OpenCLDevice:
    """Open the OpenCL device numbered `which`; the same object when this process opened it before.

    Raises DeviceError with every candidate's reason when there is none of that number.
    """
    from umsh.backends.opencl import runtime
    from umsh.backends.opencl.device import OpenCLDevice

    if not isinstance(which, int):
        raise DeviceError(
            f"OpenCL devices are numbered; {which!r} is no number.",
            "No device was opened.",
            "Use a name such as 'opencl:0'.",
        )
    return runtime.opened(which, OpenCLDevice)
