"""What the fabric refuses or cannot do, and how it says so."""

from __future__ import annotations

import pytest

from umsh.errors import DeviceError, NeedError, UnsupportedError
from umsh.fabric import Fabric
from umsh.fabric.virtual import ModelBuffer, VirtualBackend

MIB = 1 << 20
GIB = 1 << 30


def pair(server: VirtualBackend, nbytes: int) -> tuple[ModelBuffer, ModelBuffer]:
    return server.alloc("device", nbytes, 0), server.alloc("pinned", nbytes)


WRONG = (
    {"priority": -1}, {"target_ms": 0}, {"floor": 1.0}, {"floor": -0.1}, {"floor": 0.995},
    {"min_gbps": -1}, {"max_gbps": 0}, {"min_gbps": 5, "max_gbps": 4},
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_flows_out_of_range_are_refused(fabric: Fabric, wrong: dict[str, float]) -> None:
    fabric.flow("there")
    with pytest.raises(NeedError):
        fabric.flow("new", **wrong)
    with pytest.raises(NeedError, match="exists"):
        fabric.flow("there")


def test_links_that_are_none_are_refused(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("x", priority=1)
    host, device = server.alloc("pinned", MIB), server.alloc("device", MIB, 0)
    with pytest.raises(NeedError, match="host memory"):
        flow.copy(host, server.alloc("pinned", MIB))
    with pytest.raises(NeedError, match="one device"):
        flow.copy(device, server.alloc("device", MIB, 0))
    with pytest.raises(NeedError, match="Sizes differ"):
        flow.copy(device, server.alloc("pinned", 2 * MIB))
    with pytest.raises(NeedError):
        flow.checkpoint(1, link="up:0")
    with pytest.raises(NeedError, match="no link yet"):
        flow.checkpoint(1)


def test_a_captured_stream_gets_a_captured_copy(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("kv", priority=0)
    stream = server.open_stream(0)
    stream.capturing = True
    copy = flow.copy(*pair(server, MIB), stream=stream)
    assert len(stream.captured) == 1
    with pytest.raises(UnsupportedError, match="graph"):
        copy.wait()
    copy.wait_on(stream)


def test_a_lost_device_fails_every_transfer_and_later_copies(fabric: Fabric, server: VirtualBackend) -> None:
    flow = fabric.flow("kv", priority=0)
    copies = [flow.copy(*pair(server, GIB), ordered=False) for _ in range(3)]
    server.run(1e-3)
    server.broken = True
    for copy in copies:
        with pytest.raises(DeviceError, match="failed after"):
            copy.wait()
    with pytest.raises(DeviceError, match="lost its device"):
        flow.copy(*pair(server, MIB), ordered=False)
