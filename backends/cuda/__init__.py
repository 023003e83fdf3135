"""Driver `cuda`: NVIDIA GPUs, discrete and integrated, through cuda.bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umsh.backends.cuda.device import CudaDevice


def open_device(which: int | str = 0) -> CudaDevice:
    """Open the CUDA device numbered `which`; the same object when this process opened it before.

    Raises DeviceError: cuda-python or the driver is missing or too old, no device is visible, the
    number is none, or this process was forked after CUDA was initialised.
    """
    from umsh.backends.cuda.calls import initialise

    count = initialise()
    from umsh.backends.cuda.device import opened

    return opened(int(which), count)
