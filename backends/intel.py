"""What the Intel platforms share: recognition by PCI id and kernel driver, and the coherent default."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.machine import Fact, Platform

VENDOR = 0x8086
KERNEL_DRIVERS = ("i915", "xe")
SOURCE = (
    "Intel USM specification (cl_intel_unified_shared_memory): host allocations are shared with the device; "
    "OpenCL: hand-over at synchronisation points; compute-runtime SYSTEM_MEMORY_ALLOCATIONS.md: coherent PAT"
)


def evidence(facts: Mapping[str, Fact], device_ids: frozenset[int]) -> str:
    """Which PCI device and kernel driver say so; "" when no graphics device of these ids is here.

    facts["drm"] holds "driver:vendor:device" of each graphics device, as /sys/class/drm tells without root.
    """
    if facts.get("device_type") != "gpu" or facts.get("vendor_id") != VENDOR:
        return ""
    for entry in str(facts.get("drm", "")).split():
        driver, vendor, device = entry.split(":")
        if driver in KERNEL_DRIVERS and int(vendor, 16) == VENDOR and int(device, 16) in device_ids:
            return f"PCI device {device} of Intel under kernel driver {driver}"
    return ""


def platform(name: str, device_ids: frozenset[int]) -> Platform:
    """A platform reached through OpenCL; nothing that needs debug keys is among its defaults."""
    return Platform(
        name=name,
        driver="opencl",
        matches=lambda facts: evidence(facts, device_ids),
        safe_mechanisms=("usm-host.driver:WA/RA", "copy.4k:copy/copy"),
        safe_memory=("svm", "usm-host"),
        safe_lock="peterson",
        safe_wait="block",
        source=SOURCE,
    )
