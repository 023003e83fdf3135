"""Platform raptor: Raptor Lake, Xe-LP graphics on the CPU's ring. The GPU hands over between kernels."""

from __future__ import annotations

from umsh.backends import intel

# Linux include/drm/intel/pciids.h: INTEL_RPLS_IDS, INTEL_RPLU_IDS, INTEL_RPLP_IDS.
DEVICE_IDS = frozenset(
    {
        0xA780,
        0xA781,
        0xA782,
        0xA783,
        0xA788,
        0xA789,
        0xA78A,
        0xA78B,
        0xA720,
        0xA721,
        0xA7A0,
        0xA7A1,
        0xA7A8,
        0xA7A9,
        0xA7AA,
        0xA7AB,
        0xA7AC,
        0xA7AD,
    }
)
PLATFORM = intel.platform("raptor", DEVICE_IDS)
