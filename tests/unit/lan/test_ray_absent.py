"""Without Ray the registry says so, and everything else works."""

from __future__ import annotations

import importlib.util

import pytest

from umsh.lan.errors import RegistryError
from umsh.lan.ray_registry import RayRegistry


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_error_names_the_extra() -> None:
    with pytest.raises(RegistryError, match=r"umsh\[ray\]"):
        RayRegistry()
