"""Region: memory bound for both agents, with its turns, views and lifetime."""

from __future__ import annotations

import sys
import threading
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from umsh.abi import NativeRegion
from umsh.control import Word
from umsh.errors import NeedError, RegionBusy, TurnError
from umsh.handle import Handle
from umsh.lifetime import Keeper, closed, forkable
from umsh.loan import Loan, verb_open_error
from umsh.methods import COPY_IN, PUBLISH, REFRESH
from umsh.turns import CpuTurn, GpuTurn
from umsh.views import Array, GpuView, RegionArray, window

if TYPE_CHECKING:
    from umsh.backends.driver import Device, Memory, Stream
    from umsh.mechanism import Mechanism
    from umsh.need import Need

TIMEOUT_S = 60.0  # of every wait that is given no timeout_s


class Region:
    """Shared memory bound for both agents; made by umsh.bind and umsh.attach.

    shape, dtype, nbytes: as asked. requested: the Need. effective: the Mechanism in force.
    device: the opened driver device; OpenCL queues and kernels use its `context`.
    """

    def __init__(self, device: Device, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any],
                 need: Need, mechanism: Mechanism, why: Any, adopted: object = None) -> None:  # fmt: skip
        self.shape = shape
        self.dtype = dtype
        self.nbytes = need.nbytes
        self.requested = need
        self.effective = mechanism
        self._why = why
        self.device = device
        self._closed = ""
        self._keeper = Keeper(memory, adopted)
        self._address = memory.address
        self._flat = window(self._keeper, memory.address)
        apart = memory.device_address not in (0, memory.address)
        self._device_flat = window(self._keeper, memory.device_address) if apart else self._flat
        self._array: Array = np.ndarray(shape, dtype, buffer=self._flat)
        self._copies = mechanism.write == "copy"
        self._cpu_writes = need.direction != "gpu->cpu"
        self._gpu_writes = need.direction != "cpu->gpu"
        self._inside = need.boundary == "inside"
        self._publish = PUBLISH[mechanism.write]
        self._refresh = REFRESH[mechanism.read]
        self._copy_in = COPY_IN.get(mechanism.write)
        self._guard = threading.Lock()
        self._loan: Loan | None = None  # of the turn that is open, or was last
        self._gpu_was_last = False
        try:
            self._publish_all(None)
        except BaseException:
            self._keeper.free()
            raise
        self._own_refs = self._refs()
        forkable(self)

    # ---- turns ---------------------------------------------------------------------------

    def on_cpu(self, write: bool = False, timeout_s: float = TIMEOUT_S) -> CpuTurn:
        """A block in which the CPU has the region: `as` gives its NumPy array, read-only unless `write`.

        Waits for the GPU's recorded work, applies the read method; with `write`, publishes at exit.
        Raises RegionBusy, TurnError, WaitTimeout.
        """
        if write and not self._cpu_writes:
            raise self._direction_error("the CPU does not write")
        return CpuTurn(self, write, timeout_s, sys._getframe(1))

    def on_gpu(self, stream: object = None, timeout_s: float = TIMEOUT_S) -> GpuTurn:
        """A block in which the GPU has the region: `as` gives its GpuView.

        stream: the queue or stream the block's kernels run on; ordered on it, nothing blocks. None
        waits here for earlier hand-overs and synchronises at exit. Raises RegionBusy, TurnError, WaitTimeout.
        """
        return GpuTurn(self, stream, timeout_s, sys._getframe(1))

    # ---- boundary="inside": no turns -----------------------------------------------------

    @property
    def cpu(self) -> Array:
        """The CPU's array under boundary="inside"; order accesses with flags, locks and words."""
        self._check_inside("region.cpu", "region.on_cpu()")
        return self._array.view()

    @property
    def gpu(self) -> GpuView:
        """The GPU's view under boundary="inside"; on no stream, DLPack consumers are not ordered."""
        self._check_inside("region.gpu", "region.on_gpu()")
        return GpuView(self._keeper.memory, self._device_array(), self.device.dlpack_device, None, _no_order)

    def word(self, index: int) -> Word:
        """Control word `index`: the 32 bits at byte 4 * index, for umsh.acquire and umsh.release."""
        self._check_inside("region.word()", "umsh.Flag or umsh.Lock")
        if not isinstance(index, SupportsIndex) or not 0 <= index < self.nbytes // 4 or self._address % 4:
            raise NeedError(
                f"Word {index} of {self.nbytes // 4} words from {self._address:#x} on was asked for.",
                "No word was made.",
                "Words are 4-byte aligned and count from 0.",
            )
        return Word(self._flat, self._address + 4 * index)

    def native(self) -> NativeRegion:
        """The region as a `umsh_region` of umsh.h, for native code; keeps the memory while it lives."""
        self._check_inside("region.native()", "the addresses of region.on_cpu() and region.on_gpu()")
        device_address, how = self._keeper.memory.device_address, self.effective
        return NativeRegion(self._flat, device_address, self.nbytes, how.write, how.read)

    def publish(self, offset: int = 0, nbytes: int | None = None) -> None:
        """Make CPU stores in bytes [offset, offset + nbytes) visible, before a flag or word tells of them."""
        self._check_inside("region.publish()", "region.on_cpu(write=True)")
        self._publish(*self._range(offset, nbytes))

    def refresh(self, offset: int = 0, nbytes: int | None = None) -> None:
        """Let later CPU loads of these bytes see what the GPU published; after a flag or word told of it."""
        self._check_inside("region.refresh()", "region.on_cpu()")
        self._refresh(*self._range(offset, nbytes))

    # ---- sharing, lifetime ---------------------------------------------------------------

    def share(self) -> Handle:
        """A picklable handle for umsh.attach in another process; UnsupportedError unless bound shared."""
        self._check_open()
        memory = dict(self._keeper.memory.share())
        device = f"{self.device.driver}:{self.device.index}"
        return Handle(device, self.shape, self.dtype, self.requested, self.effective, memory)

    def __enter__(self) -> Region:
        self._check_open()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Unbind; after an exception arrays may still live in its frames, so the last holder frees."""
        if kind is None:
            self._unbind(TIMEOUT_S)
        elif not self._closed:
            self._drop("The region's `with` block ended with an exception.")

    def __repr__(self) -> str:
        state = self._closed or f"{self.effective}"
        return f"<umsh.Region {self.shape} {self.dtype} {self.requested.direction} {state}>"

    def _unbind(self, timeout_s: float) -> None:
        if self._inside:
            self._check_open()
            if live := self._refs() - self._own_refs:
                raise RegionBusy(
                    f"{live} arrays, views or words made from the region still live.",
                    "It was not unbound; nothing was freed.",
                    "Delete them first.",
                )
            self._keeper.settle(timeout_s)
            self._drop("The region was unbound.")
            return
        self._begin(None)
        try:
            self._keeper.settle(timeout_s)
            self._drop("The region was unbound.")
        finally:
            self._end()

    def _drop(self, reason: str) -> None:
        """Close and let go of the memory: freed now, or by whoever still holds a closed array of it."""
        self._close(reason)
        self._loan = None
        self._keeper.unbind()
        del self._keeper, self._flat, self._device_flat, self._array

    def _close(self, reason: str) -> None:
        self._closed = reason
        if self._loan is not None:
            self._loan.close()

    # ---- what turns and verbs stand on ---------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self._closed)

    def _check_inside(self, what: str, instead: str) -> None:
        if self._closed:
            raise closed(self._closed)
        if not self._inside:
            raise TurnError(
                f'{what} belongs to boundary="inside"; this region was bound with boundary="kernel".',
                "Nothing was done.",
                f"Use {instead}, or bind for boundary='inside'.",
            )

    def _direction_error(self, what: str) -> TurnError:
        return TurnError(
            f"The region was bound for {self.requested.direction!r}, so {what}.",
            "Nothing was done.",
            "Bind it with direction='both'.",
        )

    def _begin(self, loan: Loan | None) -> None:
        """Open a turn, or an exclusive verb (None); the caller must call _end()."""
        if self._closed:
            raise closed(self._closed)
        if loan is not None and self._inside:
            raise TurnError(
                'The region was bound with boundary="inside", which has no turns.',
                "Nothing was handed over.",
                "Use region.cpu and region.gpu, ordered by flags, locks and words.",
            )
        if not self._guard.acquire(False):
            last = self._loan
            raise last.open_error() if last is not None else verb_open_error()
        last = self._loan  # read only now: another thread may have ended its turn, or unbound, since
        if self._closed:
            self._guard.release()
            raise closed(self._closed)
        if last is not None and (live := last.live()):
            self._guard.release()
            raise last.live_error(live)
        self._loan = loan

    def _end(self) -> None:
        self._guard.release()

    def _receive(self, timeout_s: float) -> None:
        """Wait for the GPU's recorded work and let the CPU see it."""
        work = self._keeper.work
        if work:
            self._keeper.settle(timeout_s)
        if self._gpu_was_last:
            self._refresh(self._address, self.nbytes)
            self._gpu_was_last = False

    def _publish_all(self, stream: object) -> None:
        self._publish_range(0, self.nbytes, stream)

    def _publish_range(self, offset: int, nbytes: int, stream: object) -> None:
        self._publish(self._address + offset, nbytes)
        if self._copies:
            event = self._keeper.memory.upload(offset, nbytes, self.device.stream(stream))
            if event is not None:
                self._keeper.work.append(event)

    def _gpu_done(self, stream: Stream, timeout_s: float, wait: bool) -> None:
        """End of a GPU turn: bring its results back where memory is copied, record or wait."""
        event = None
        if self._gpu_writes:
            self._gpu_was_last = True
            if self._copies:
                event = self._keeper.memory.download(0, self.nbytes, stream)
        if wait:
            stream.synchronize(timeout_s)
            self._keeper.work.clear()
        else:
            self._keeper.work[:] = [event or stream.record()]

    def _turn_array(self) -> RegionArray:
        return np.ndarray.__new__(RegionArray, self.shape, self.dtype, buffer=self._flat)

    def _device_array(self) -> Array:
        return np.ndarray(self.shape, self.dtype, buffer=self._device_flat)

    def _refs(self) -> int:
        """References to the region's bytes: NumPy points every array made from them at these two."""
        return sys.getrefcount(self._flat) + sys.getrefcount(self._device_flat)

    def _range(self, offset: int, nbytes: int | None) -> tuple[int, int]:
        """Address and length of bytes [offset, offset + nbytes); all from `offset` on when nbytes is None."""
        whole = isinstance(offset, SupportsIndex) and (nbytes is None or isinstance(nbytes, SupportsIndex))
        first = index(offset) if whole else -1
        count = self.nbytes - first if nbytes is None or not whole else index(nbytes)
        if first < 0 or count < 0 or first + count > self.nbytes:
            raise NeedError(
                f"offset={offset!r}, nbytes={nbytes!r} of a region of {self.nbytes} bytes were named.",
                "Nothing was done.",
                "Give whole numbers inside the region.",
            )
        return self._address + first, count


def _no_order(consumer: object) -> None:
    """Under boundary="inside" flags, locks and words order accesses, never a stream."""


def check_region(given: object) -> None:
    """NeedError unless it is a Region."""
    if not isinstance(given, Region):
        raise NeedError(f"A {type(given).__name__} is no region.", "Nothing was done.", "Use umsh.bind().")
