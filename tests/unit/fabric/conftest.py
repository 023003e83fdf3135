"""Fixtures of the fabric's tests: a modelled server and a fabric on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from umsh.fabric import Fabric
from umsh.fabric.virtual import VirtualBackend


@pytest.fixture
def server() -> VirtualBackend:
    return VirtualBackend()


@pytest.fixture
def fabric(server: VirtualBackend) -> Iterator[Fabric]:
    with Fabric(server) as made:
        yield made
