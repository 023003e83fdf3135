"""Memory: all or nothing, zeroed, given back exactly once, with the driver's reason when refused."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from umsh.backends.cuda import memory as cuda_memory
from umsh.backends.cuda.device import CudaDevice
from umsh.backends.pages import view
from umsh.errors import AdoptError, DeviceError, NeedError, OutOfMemory, UnsupportedError

Open = Callable[[str], CudaDevice]
KINDS = ("pinned", "pinned-wc", "registered", "managed", "host-vmm", "copy")


def address_of(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_zeroed_and_all_of_it_given_back(opened: Open, fake: Any, kind: str) -> None:
    device = opened("h200")
    pages = next(k.pages[0] for k in device.memory_kinds() if k.name == kind)
    before = fake.live()
    memory = device.allocate(kind, 100_000, pages)
    assert not view(memory.address, 100_000).any()
    assert fake.live() != before
    memory.free()
    memory.free()
    assert fake.live() == before


def test_dropping_memory_frees_it(opened: Open, fake: Any) -> None:
    device = opened("h200")
    before = fake.live()
    device.allocate("pinned", 4096, "driver")
    assert fake.live() == before


@pytest.mark.parametrize("kind", ["pinned", "managed", "copy"])
def test_out_of_memory_leaves_nothing(opened: Open, fake: Any, kind: str) -> None:
    device = opened("h200")
    before = fake.live()
    fake.lib.fake_set_free_bytes(1024)
    with pytest.raises(OutOfMemory):
        device.allocate(kind, 4096, "driver")
    assert fake.live() == before


def test_copy_without_device_memory_gives_its_host_half_back(opened: Open, fake: Any) -> None:
    device = opened("h200")
    before = fake.live()
    fake.fail("cuMemAlloc_v2", 2)
    with pytest.raises(OutOfMemory, match="cuMemAlloc of 4096 bytes"):
        device.allocate("copy", 4096, "driver")
    assert fake.live() == before


def test_more_than_the_machine_has_is_refused_before_it_is_asked_for(opened: Open, fake: Any) -> None:
    device = opened("h200")
    calls = fake.calls("cuMemHostAlloc")
    with pytest.raises(OutOfMemory):
        device.allocate("pinned", 1 << 45, "driver")
    assert fake.calls("cuMemHostAlloc") == calls


def test_a_step_of_virtual_memory_that_fails_undoes_the_earlier_ones(opened: Open, fake: Any) -> None:
    device = opened("h200")
    before = fake.live()
    fake.fail("cuMemSetAccess", 801)
    with pytest.raises(UnsupportedError, match="cuMemSetAccess"):
        device.allocate("host-vmm", 4096, "driver")
    assert fake.live() == before
    assert fake.calls("cuMemRelease") == fake.calls("cuMemUnmap") == 1


def test_write_combined_memory_that_fails_by_size_names_the_size(opened: Open, fake: Any) -> None:
    """https://github.com/ai-dynamo/dynamo/pull/5328: INVALID_VALUE at 1 GB, fine at 4 KB."""
    device = opened("h200")
    fake.fail("cuMemHostAlloc", 1)
    with pytest.raises(DeviceError, match="cuMemHostAlloc of 8192 bytes gave CUDA_ERROR_INVALID_VALUE"):
        device.allocate("pinned-wc", 8192, "driver")
    device.allocate("pinned-wc", 4096, "driver").free()


@pytest.mark.parametrize(
    ("code", "error", "reason"),
    [
        (801, AdoptError, "cannot register this kind of memory"),
        (1, AdoptError, "read-only, partly unmapped or not ordinary"),
        (712, AdoptError, "registered already"),
        (2, OutOfMemory, "could not be pinned"),
        (700, DeviceError, "context is lost"),
    ],
)
def test_registration_refused_says_why(
    opened: Open, fake: Any, code: int, error: type[Exception], reason: str
) -> None:
    """https://github.com/vllm-project/vllm-omni/pull/6240: 801 and 1 for read-only maps on B300."""
    device = opened("h200")
    array = np.zeros(4096, np.uint8)
    before = fake.live()
    fake.fail("cuMemHostRegister_v2", code)
    with pytest.raises(error, match=reason):
        device.adopt("registered", address_of(array), array.nbytes, array)
    assert fake.live() == before


def test_pieces_registered_before_a_failure_are_rolled_back(
    opened: Open, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """https://github.com/kvcache-ai/Mooncake/pull/3845: one call of 512 GiB fails; pieces may fail midway."""
    device = opened("h200")
    monkeypatch.setattr(cuda_memory, "REGISTER_NBYTES_MAX", 1 << 20)
    array = np.zeros(5 << 20, np.uint8)
    fake.fail("cuMemHostRegister_v2", 1, nth=3)
    with pytest.raises(AdoptError):
        device.adopt("registered", address_of(array), array.nbytes, array)
    assert fake.live()["registered"] == 0
    assert fake.calls("cuMemHostUnregister") == 2
    memory = device.adopt("registered", address_of(array), array.nbytes, array)
    assert fake.live()["registered"] == 5
    memory.free()
    assert fake.live()["registered"] == 0


def test_adopted_memory_lives_as_long_as_its_region(opened: Open, fake: Any) -> None:
    device = opened("h200")
    array = np.arange(1024, dtype=np.uint32)
    memory = device.adopt("registered", address_of(array), array.nbytes, array)
    assert memory.address == address_of(array)
    assert memory.keep is array
    memory.free()
    assert (array == np.arange(1024)).all()


def test_overlapping_memory_is_refused(opened: Open) -> None:
    device = opened("h200")
    array = np.zeros(1 << 16, np.uint8)
    memory = device.adopt("registered", address_of(array), array.nbytes, array)
    with pytest.raises(AdoptError, match="registered already"):
        device.adopt("registered", address_of(array) + 4096, 4096, array)
    memory.free()


def test_read_only_and_unmapped_memory_is_refused_by_reason(opened: Open, tmp_path: Any) -> None:
    device = opened("h200")
    path = tmp_path / "data"
    path.write_bytes(bytes(8192))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ)
    address = address_of(np.frombuffer(mapped, np.uint8))
    with pytest.raises(AdoptError, match=str(path)):
        device.adopt("registered", address, 8192, mapped)
    with pytest.raises(AdoptError, match="nothing is mapped"):
        device.adopt("registered", 4096, 4096, None)


def test_zero_bytes_and_foreign_pointers_are_refused(opened: Open) -> None:
    device = opened("h200")
    array = np.zeros(64, np.uint8)
    with pytest.raises(AdoptError, match="0 bytes"):
        device.adopt("registered", address_of(array), 0, array)
    with pytest.raises(AdoptError, match="not pinned CPU memory"):
        device.adopt("pinned", address_of(array), 64, array)
    with pytest.raises(AdoptError, match="always allocated by the driver"):
        device.adopt("managed", address_of(array), 64, array)


def test_memory_pinned_by_someone_else_is_adopted_and_left_pinned(opened: Open, fake: Any) -> None:
    device = opened("h200")
    theirs = device.allocate("pinned", 4096, "driver")
    ours = device.adopt("pinned", theirs.address, 4096, theirs)
    ours.free()
    assert fake.calls("cuMemFreeHost") == 0
    theirs.free()


def test_only_our_own_pages_can_be_shared(opened: Open) -> None:
    device = opened("h200")
    with pytest.raises(UnsupportedError, match="cannot be lent"):
        device.allocate("pinned", 4096, "driver", shared=True)
    memory = device.allocate("registered", 8192, "4k", shared=True)
    again = device.attach(memory.share())
    view(memory.address, 8192)[5] = 77
    assert view(again.address, 8192)[5] == 77
    again.free()
    memory.free()


def test_attach_after_the_owner_is_gone(opened: Open) -> None:
    device = opened("h200")
    memory = device.allocate("registered", 8192, "4k", shared=True)
    handle = memory.share()
    memory.free()
    with pytest.raises(DeviceError, match="cannot be reached"):
        device.attach(handle)


def test_copies_stay_inside_the_region(opened: Open) -> None:
    device = opened("h200")
    memory = device.allocate("copy", 4096, "driver")
    with pytest.raises(NeedError, match="Bytes 4000 to 4200"):
        memory.upload(4000, 200, device.stream())
    memory.free()


def test_freeing_after_the_context_was_lost_is_quiet(opened: Open, fake: Any) -> None:
    device = opened("h200")
    memory = device.allocate("pinned", 4096, "driver")
    fake.fail("cuMemFreeHost", 700)
    memory.free()
