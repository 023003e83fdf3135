"""Device attributes of the machines the driver must recognise, as their vendor documents describe them."""

from __future__ import annotations

# CUdevice_attribute numbers; cuda.h.
NUMBERS = {
    "multiprocessor_count": 16, "integrated": 18, "can_map_host_memory": 19, "unified_addressing": 41,
    "max_threads_per_multiprocessor": 39, "compute_capability_major": 75, "compute_capability_minor": 76,
    "managed_memory": 83, "host_native_atomic_supported": 86, "pageable_memory_access": 88,
    "concurrent_managed_access": 89, "can_use_host_pointer_for_registered_mem": 91, "cooperative_launch": 95,
    "host_register_supported": 99, "pageable_memory_access_uses_host_page_tables": 100,
    "host_numa_virtual_memory_management_supported": 141,
}  # fmt: skip

COMMON = {
    "multiprocessor_count": 16, "can_map_host_memory": 1, "unified_addressing": 1, "managed_memory": 1,
    "max_threads_per_multiprocessor": 2048, "cooperative_launch": 1, "host_register_supported": 1,
    "can_use_host_pointer_for_registered_mem": 1,
}  # fmt: skip

ATS = {
    "pageable_memory_access": 1,
    "pageable_memory_access_uses_host_page_tables": 1,
    "concurrent_managed_access": 1,
    "host_native_atomic_supported": 1,
}


def _machine(major: int, minor: int, **more: int) -> dict[str, int]:
    return {**COMMON, "compute_capability_major": major, "compute_capability_minor": minor, **more}


MACHINES = {
    # committed facts of the H200 this project ran on: microbench/results/h200-*/
    "h200": _machine(9, 0, concurrent_managed_access=1, host_numa_virtual_memory_management_supported=1),
    "discrete-hmm": _machine(8, 9, concurrent_managed_access=1, pageable_memory_access=1),
    # CUDA for Tegra application note: all three managed and pageable attributes are 0
    "orin": _machine(8, 7, integrated=1),
    "spark": _machine(12, 1, integrated=1, **ATS),
    "thor": _machine(11, 0, integrated=1, **ATS),
    "grace-hopper": _machine(9, 0, **ATS),
    "no-registration": _machine(7, 2, integrated=1, host_register_supported=0),
    "pascal": _machine(6, 1, concurrent_managed_access=1),
}
