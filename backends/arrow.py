"""Platform arrow: Arrow Lake, Xe-LPG graphics on a tile of its own, no memory-side cache.

Coherence off (the paper's pick for gpu->cpu) needs debug keys under i915; xe refuses it: never a default.
"""

from __future__ import annotations

from umsh.backends import intel

# Linux include/drm/intel/pciids.h: INTEL_ARL_H_IDS, INTEL_ARL_U_IDS, INTEL_ARL_S_IDS.
DEVICE_IDS = frozenset({0x7D51, 0x7DD1, 0x7D41, 0x7D67, 0xB640})
PLATFORM = intel.platform("arrow", DEVICE_IDS)
