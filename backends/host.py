"""Platform host: the CPU itself as an OpenCL device; everything write-back and coherent."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.machine import Fact, Platform


def _matches(facts: Mapping[str, Fact]) -> str:
    if facts.get("device_type") != "cpu":
        return ""
    return "the OpenCL device is this machine's CPU (CL_DEVICE_TYPE_CPU)"


PLATFORM = Platform(
    name="host",
    driver="opencl",
    matches=_matches,
    safe_mechanisms=("svm.driver:WA/RA", "usm-host.driver:WA/RA", "system.4k:WA/RA", "copy.4k:copy/copy"),
    safe_memory=("svm", "usm-host", "system"),
    safe_lock="cas",
    safe_wait="thread",
    source="OpenCL 3.0 API, Shared Virtual Memory: fine-grain buffer sharing with CL_MEM_SVM_ATOMICS",
)
