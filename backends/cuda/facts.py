"""Facts asked of the CUDA driver: device attributes by name, versions, identity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from umsh.backends.cuda.calls import check, driver
from umsh.backends.driver import Fact

INVALID_VALUE = 1
# CU_DEVICE_ATTRIBUTE_<name>. One that this driver or cuda.bindings does not know reads 0: absent.
ATTRIBUTES = (
    "COMPUTE_CAPABILITY_MAJOR",
    "COMPUTE_CAPABILITY_MINOR",
    "INTEGRATED",
    "CAN_MAP_HOST_MEMORY",
    "L2_CACHE_SIZE",
    "MULTIPROCESSOR_COUNT",
    "MAX_THREADS_PER_MULTIPROCESSOR",
    "ASYNC_ENGINE_COUNT",
    "UNIFIED_ADDRESSING",
    "MANAGED_MEMORY",
    "HOST_NATIVE_ATOMIC_SUPPORTED",
    "ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED",
    "PAGEABLE_MEMORY_ACCESS",
    "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES",
    "CONCURRENT_MANAGED_ACCESS",
    "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST",
    "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
    "HOST_REGISTER_SUPPORTED",
    "READ_ONLY_HOST_REGISTER_SUPPORTED",
    "COOPERATIVE_LAUNCH",
    "GPU_DIRECT_RDMA_SUPPORTED",
    "DMA_BUF_SUPPORTED",
    "NUMA_ID",
    "HOST_NUMA_ID",
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
    "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
    "HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
    "HOST_NUMA_MEMORY_POOLS_SUPPORTED",
    "HOST_MEMORY_POOLS_SUPPORTED",
    "HOST_ALLOC_DMA_BUF_SUPPORTED",
)


def read_attributes(device: Any) -> dict[str, int]:
    """Every attribute above, lower-case name -> value."""
    native = driver()
    values = {}
    for name in ATTRIBUTES:
        attribute = getattr(native.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        values[name.lower()] = 0 if attribute is None else _ask(native, attribute, device)
    return values


def read_facts(device: Any) -> Mapping[str, Fact]:
    """Attributes, versions and identity of one device."""
    native = driver()
    values: dict[str, Fact] = {"device_type": "gpu", **read_attributes(device)}
    (name,) = check(native.cuDeviceGetName(96, device), "cuDeviceGetName")
    (uuid,) = check(native.cuDeviceGetUuid(device), "cuDeviceGetUuid")
    (pci,) = check(native.cuDeviceGetPCIBusId(32, device), "cuDeviceGetPCIBusId")
    (memory,) = check(native.cuDeviceTotalMem(device), "cuDeviceTotalMem")
    (version,) = check(native.cuDriverGetVersion(), "cuDriverGetVersion")
    values["name"] = _text(name)
    values["uuid"] = bytes(uuid.bytes).hex()
    values["pci"] = _text(pci)
    values["device_memory_bytes"] = int(memory)
    values["cuda_version"] = f"{version // 1000}.{version % 1000 // 10}"
    values["driver_version"] = kernel_driver_version() or str(values["cuda_version"])
    values["addressing"] = addressing(values)
    return values


def addressing(facts: Mapping[str, Fact]) -> str:
    """How the GPU reaches memory that CUDA did not allocate, as `nvidia-smi -q` prints it."""
    if not facts["pageable_memory_access"]:
        return "none"
    return "ATS" if facts["pageable_memory_access_uses_host_page_tables"] else "HMM"


def kernel_driver_version(path: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The kernel module's version such as "580.159.04"; "" where this kernel does not show it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    words = text.partition("\n")[0].split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def _ask(native: Any, attribute: Any, device: Any) -> int:
    result = native.cuDeviceGetAttribute(attribute, device)
    if int(result[0]) == INVALID_VALUE:
        return 0
    (value,) = check(result, f"cuDeviceGetAttribute({attribute.name})")
    return int(value)


def _text(raw: bytes | str) -> str:
    plain = raw if isinstance(raw, str) else raw.decode("utf-8", errors="replace")
    return plain.partition("\0")[0].strip()
