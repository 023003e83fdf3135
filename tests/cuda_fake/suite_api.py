"""The public API on each machine's safe defaults, before any probe has run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.backends import open_device
from umsh.backends.cuda import device as cuda_device
from umsh.backends.cuda.device import CudaDevice
from umsh.errors import RegionBusy, UnsupportedError
from umsh.mechanism import Mechanism
from umsh.resolve import in_force

Open = Callable[[str], CudaDevice]
DEFAULTS = {
    "h200": "pinned.driver:WA/RA",
    "discrete-hmm": "pinned.driver:WA/RA",
    "orin": "pinned.driver:WA/RA",
    "spark": "system.thp:WA/RA",
    "thor": "pinned.driver:WA/RA",
    "grace-hopper": "pinned.driver:WA/RA",
}


@pytest.fixture
def use(fake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[[str], None]:
    """Make "cuda:0" a machine of that name, with no choice of an earlier probe."""
    from umsh import choice, resolve

    monkeypatch.setattr(cuda_device, "_devices", {})
    monkeypatch.setattr(choice, "own_folder", lambda device: tmp_path / "none")
    monkeypatch.delenv(resolve.ENVIRONMENT, raising=False)
    resolve.forget()
    return fake.machine  # type: ignore[no-any-return]


@pytest.mark.parametrize(("machine", "mechanism"), DEFAULTS.items())
def test_binding_uses_the_safe_default(use: Callable[[str], None], machine: str, mechanism: str) -> None:
    use(machine)
    with umsh.bind((256,), "float32", direction="both", device="cuda:0") as region:
        assert str(region.effective) == mechanism
        with region.on_cpu(write=True) as array:
            array[:] = 3
        with region.on_gpu() as view:
            assert view.ptr
            assert view.__dlpack_device__() == (2, 0)
            assert view.__cuda_array_interface__["data"][0] == view.ptr
        assert (umsh.read(region) == 3).all()


@pytest.mark.parametrize("machine", ["orin", "spark"])
def test_machines_nobody_measured_ship_what_the_vendor_documents(
    use: Callable[[str], None], machine: str
) -> None:
    use(machine)
    device = open_device("cuda:0")
    force = in_force(device)
    assert force.origin == "shipped"
    assert force.choice is not None
    assert force.choice.provenance == "documented"
    kinds = {kind.name: kind for kind in device.memory_kinds()}
    for row in force.choice.data:
        for mechanism in map(Mechanism.parse, filter(None, (row.mechanism, row.next))):
            assert kinds[mechanism.memory].documented
            assert row.boundary == "kernel" or kinds[mechanism.memory].inside
        assert row.evidence.startswith("documented, not measured")
    told = umsh.explain(device="cuda:0").to_dict()["facts"]
    assert told["provenance"].startswith("documented by the vendor, not measured")
    with umsh.bind((256,), "float32", direction="both", device="cuda:0") as region:
        assert "shipped" in str(umsh.explain(region).to_dict()["facts"])


@pytest.mark.parametrize("machine", DEFAULTS)
def test_flags_and_locks_rest_on_loads_and_stores(use: Callable[[str], None], machine: str) -> None:
    use(machine)
    flag, lock = umsh.Flag(pollers=64, device="cuda:0"), umsh.Lock(gpu_threads=8, device="cuda:0")
    umsh.set(flag, 2)
    umsh.wait(flag, 2, timeout_s=1)
    assert lock.algorithm == "peterson"
    with lock:
        pass


def test_a_forced_mechanism_names_the_missing_attribute(use: Callable[[str], None]) -> None:
    use("orin")
    with pytest.raises(UnsupportedError, match="CONCURRENT_MANAGED_ACCESS is 0"):
        umsh.bind((256,), "u1", mechanism="managed.driver:WA/RA", device="cuda:0")


def test_existing_and_shared_memory_take_the_next_kind_that_can(use: Callable[[str], None]) -> None:
    use("h200")
    array = np.zeros(8192, np.uint8)
    region = umsh.bind(memory=array, direction="cpu->gpu", device="cuda:0")
    assert region.effective.memory == "registered"
    umsh.unbind(region)
    region = umsh.bind((8192,), "u1", shared=True, device="cuda:0")
    assert region.effective.memory == "registered"
    umsh.unbind(region)


def test_a_running_kernel_blocks_the_hand_over_until_its_bound(use: Callable[[str], None], fake: Any) -> None:
    """https://github.com/NVIDIA/warp/issues/1766: the CPU moved on while the kernel wrote."""
    use("h200")
    region = umsh.bind((256,), "u1", device="cuda:0")
    with region.on_gpu(stream=1):
        with pytest.raises(RegionBusy):
            region.on_cpu().__enter__()
        fake.lib.fake_set_pending(1)
    with pytest.raises(umsh.errors.WaitTimeout):
        region.on_cpu(timeout_s=0.05).__enter__()
    fake.lib.fake_set_pending(0)
    with region.on_cpu():
        pass
    umsh.unbind(region)


def test_usable_memory_says_its_source(use: Callable[[str], None]) -> None:
    use("h200")
    assert umsh.memory_info(device="cuda:0").source == "cuMemGetInfo"
