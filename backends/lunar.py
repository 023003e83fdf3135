"""Platform lunar: Lunar Lake, Xe2 graphics, an 8 MB memory-side cache that makes coherence cheap."""

from __future__ import annotations

from umsh.backends import intel

# Linux include/drm/intel/pciids.h: INTEL_LNL_IDS.
DEVICE_IDS = frozenset({0x6420, 0x64A0, 0x64B0})
PLATFORM = intel.platform("lunar", DEVICE_IDS)
