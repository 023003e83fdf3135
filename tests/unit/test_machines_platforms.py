"""Platform files of the Intel machines: what is recognised, what is not, and what may be a default."""

from __future__ import annotations

from dataclasses import replace

import pytest

from umsh.backends import arrow, lunar, platforms, raptor
from umsh.machine import recognise

GPU = {"device_type": "gpu", "vendor_id": 0x8086}


@pytest.mark.parametrize(
    ("drm", "name"),
    [("i915:0x8086:0xa780", "raptor"), ("i915:0x8086:0x7d67", "arrow"), ("xe:0x8086:0x64a0", "lunar")],
)
def test_an_intel_gpu_is_recognised_by_pci_id_and_kernel_driver(drm: str, name: str) -> None:
    found = recognise(platforms(), "opencl", {**GPU, "drm": drm})
    assert found is not None
    assert found[0].name == name
    assert drm.split(":", maxsplit=1)[0] in found[1]


@pytest.mark.parametrize(
    "facts",
    [
        {**GPU, "drm": "i915:0x8086:0x9a49"},  # Tiger Lake: no platform of ours
        {**GPU, "drm": "vfio-pci:0x8086:0x64a0"},
        {**GPU, "drm": ""},
        {**GPU, "vendor_id": 0x10DE, "drm": "xe:0x8086:0x64a0"},  # the OpenCL device is another vendor's
    ],
)
def test_unknown_facts_match_no_platform(facts: dict[str, str]) -> None:
    assert recognise(platforms(), "opencl", facts) is None


def test_facts_that_match_two_platforms_match_none() -> None:
    twin = replace(lunar.PLATFORM, name="twin")
    assert recognise([lunar.PLATFORM, twin], "opencl", {**GPU, "drm": "xe:0x8086:0x64a0"}) is None


@pytest.mark.parametrize("platform", [raptor.PLATFORM, arrow.PLATFORM, lunar.PLATFORM], ids=lambda p: p.name)
def test_no_default_needs_a_patch_or_a_debug_key(platform) -> None:  # type: ignore[no-untyped-def]
    assert {name.split(".")[0] for name in platform.safe_mechanisms} <= {"usm-host", "copy"}
