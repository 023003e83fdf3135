"""What each machine answers: kinds with their missing attribute, platform, safe defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from umsh.backends import facts_of, platform_of
from umsh.backends.cuda.device import CudaDevice
from umsh.errors import DeviceError
from umsh.mechanism import Mechanism

Open = Callable[[str], CudaDevice]


def absent(device: CudaDevice) -> dict[str, str]:
    return {kind.name: kind.absent for kind in device.memory_kinds() if kind.absent}


@pytest.mark.parametrize(
    ("machine", "platform"),
    [
        ("h200", "discrete"),
        ("discrete-hmm", "discrete"),
        ("grace-hopper", "discrete"),
        ("orin", "orin"),
        ("spark", "spark"),
        ("thor", "integrated"),
    ],
)
def test_platform_is_recognised_by_attributes(opened: Open, machine: str, platform: str) -> None:
    found = platform_of(opened(machine))
    assert found is not None
    assert found[0].name == platform
    assert found[1]


@pytest.mark.parametrize("machine", ["thor", "grace-hopper"])
def test_machines_nobody_measured_say_that_only_safe_defaults_hold(opened: Open, machine: str) -> None:
    found = platform_of(opened(machine))
    assert found is not None
    assert "safe defaults only" in found[1]


@pytest.mark.parametrize("machine", ["h200", "orin", "spark", "thor", "grace-hopper"])
def test_the_first_safe_mechanism_is_documented_and_present(opened: Open, machine: str) -> None:
    device = opened(machine)
    found = platform_of(device)
    assert found is not None
    kinds = {kind.name: kind for kind in device.memory_kinds()}
    first = Mechanism.parse(found[0].safe_mechanisms[0])
    assert kinds[first.memory].documented
    assert not kinds[first.memory].absent
    assert first.pages in kinds[first.memory].pages
    assert not device.gpu.methods()[first.read]


@pytest.mark.parametrize("machine", ["h200", "orin", "spark", "thor", "grace-hopper"])
def test_the_default_inside_a_kernel_does_not_read_alone(opened: Open, machine: str) -> None:
    """Plain loads of a running kernel may be served by the L1 for good: microbench/results/h200-pcie."""
    device = opened(machine)
    found = platform_of(device)
    assert found is not None
    kinds = {kind.name: kind for kind in device.memory_kinds()}
    mechanism = Mechanism.parse(found[0].safe_inside[0])
    assert kinds[mechanism.memory].inside
    assert mechanism.read != "RA"


def test_absent_kinds_name_the_attribute(opened: Open) -> None:
    assert absent(opened("h200")) == {"system": "PAGEABLE_MEMORY_ACCESS is 0"}


def test_orin_never_picks_managed_memory(opened: Open) -> None:
    """https://github.com/ml-explore/mlx/issues/3645: the CPU faults while any kernel runs."""
    reasons = absent(opened("orin"))
    assert reasons["managed"].startswith("CONCURRENT_MANAGED_ACCESS is 0")
    assert "PAGEABLE_MEMORY_ACCESS" in reasons["system"]


@pytest.mark.parametrize("machine", ["spark", "thor", "grace-hopper"])
def test_ats_never_requires_registration(opened: Open, machine: str) -> None:
    """https://github.com/antirez/ds4/issues/158: registration fails or only populates on such machines."""
    device = opened(machine)
    assert "needs no registration" in absent(device)["registered"]
    memory = device.allocate("system", 8192, "4k")
    assert memory.device_address == memory.address
    memory.free()


def test_device_that_cannot_register(opened: Open) -> None:
    """https://github.com/inducer/pycuda/issues/229: attribute 0 on TX2 and Nano."""
    assert absent(opened("no-registration"))["registered"] == "HOST_REGISTER_SUPPORTED is 0"


def test_atomics_that_the_link_lacks_are_noted(opened: Open) -> None:
    kinds = {kind.name: kind for kind in opened("h200").memory_kinds()}
    assert "HOST_NATIVE_ATOMIC_SUPPORTED is 0" in kinds["pinned"].note


def test_an_attribute_the_driver_does_not_know_is_zero(opened: Open) -> None:
    assert opened("h200").facts()["only_partial_host_native_atomic_supported"] == 0


def test_facts_hold_versions_and_identity(opened: Open) -> None:
    facts = facts_of(opened("h200"))
    for name in ("device", "driver_version", "cuda_version", "uuid", "pci", "kernel", "addressing"):
        assert facts[name] != "", name


def test_a_device_too_old_is_refused(opened: Open) -> None:
    with pytest.raises(DeviceError, match=r"compute capability 6\.1"):
        opened("pascal")


def test_device_memory_figure_is_the_devices_own_on_discrete_machines(opened: Open, fake: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/46932: host memory was taken for the card's."""
    device = opened("h200")
    fake.lib.fake_set_free_bytes(5 << 30)
    assert device.memory_info() == (5 << 30, 8 << 30, "cuMemGetInfo")


def test_unified_devices_follow_reclaimable_memory(opened: Open, fake: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/48140: the driver counts page cache as used."""
    device = opened("orin")
    fake.lib.fake_set_free_bytes(4096)
    usable, total, source = device.memory_info()
    assert usable > 4096
    assert total > 8192
    assert source != "cuMemGetInfo"
