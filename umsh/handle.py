"""Handle: what another process needs to attach a region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from umsh.mechanism import Mechanism
    from umsh.need import Need


@dataclass(frozen=True, slots=True)
class Handle:
    """Made by region.share(), used by umsh.attach; picklable."""

    device: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    need: Need
    mechanism: Mechanism
    memory: dict[str, Any]
