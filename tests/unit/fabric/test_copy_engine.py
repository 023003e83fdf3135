"""The modelled copy engine: ready first, sticky to the stream, blind to priority, one a direction."""

from __future__ import annotations

import pytest

from umsh.fabric.backend import Segments
from umsh.fabric.copy_engine import MachineModel
from umsh.fabric.virtual import VirtualBackend

MIB = 1 << 20
FLAT = MachineModel(capacity_bps=1e9, duplex=0.5, copy_gap_s=0.0, piece_s=0.0)


class Lab:
    """A modelled machine of 1 GB/s and no gaps, with copies of given bytes on given streams."""

    def __init__(self, model: MachineModel = FLAT) -> None:
        self.backend = VirtualBackend(model)
        self.host = self.backend.alloc("pinned", 1 << 30)
        self.device = self.backend.alloc("device", 1 << 30, 0)
        self.ended: dict[str, float] = {}

    def copy(self, name: str, stream: object, nbytes: float, link: str = "h2d:0") -> None:
        backend = self.backend
        segments = Segments([self.device.ptr], [self.host.ptr], [int(nbytes)])
        backend.copy(link, backend.stream(stream), segments)
        backend.record(backend.stream(stream)).waiters.append(
            lambda: self.ended.__setitem__(name, backend.now())
        )


def test_copies_of_one_stream_run_in_order_at_the_links_speed() -> None:
    lab = Lab()
    stream = lab.backend.open_stream(0)
    for name in "abc":
        lab.copy(name, stream, 1e6)
    lab.backend.run()
    assert lab.ended == pytest.approx({"a": 1e-3, "b": 2e-3, "c": 3e-3})


def test_a_stream_that_always_has_work_ready_starves_the_others() -> None:
    """Back-to-back chunks of one stream run as one block: https://github.com/meta-pytorch/torchrec/pull/4303."""
    lab = Lab()
    bulk, urgent = lab.backend.open_stream(0), lab.backend.open_stream(0, priority=-5)
    for i in range(50):
        lab.copy(f"bulk {i}", bulk, 1e6)
    lab.copy("urgent", urgent, 1e3)
    lab.backend.run()
    assert lab.ended["urgent"] > lab.ended["bulk 49"]


def test_a_gap_between_chunks_lets_another_stream_in() -> None:
    """A dummy operation between chunks: https://github.com/meta-pytorch/torchrec/pull/4339."""
    lab = Lab()
    bulk, urgent = lab.backend.open_stream(0), lab.backend.open_stream(0)
    for i in range(50):
        lab.copy(f"bulk {i}", bulk, 1e6)
        lab.backend.kernel(bulk, 1e-6)
    lab.copy("urgent", urgent, 1e3)
    lab.backend.run()
    assert lab.ended["urgent"] < 2.1e-3


def test_directions_have_an_engine_each_and_share_the_duplex_loss() -> None:
    lab = Lab()
    lab.copy("in", lab.backend.open_stream(0), 1e6, "h2d:0")
    lab.copy("out", lab.backend.open_stream(0), 1e6, "d2h:0")
    lab.backend.run()
    assert lab.ended == pytest.approx({"in": 2e-3, "out": 2e-3})  # both at half, by this model's duplex


def test_kernels_that_copy_share_the_link_by_weight() -> None:
    """Processor sharing in closed form: 3 units of weight 1 beside a copy of 1 MB."""
    lab = Lab()
    lab.backend.sm_copy(lab.backend.open_stream(0), "h2d:0", 3_000_000, weight=3.0)
    lab.copy("copy", lab.backend.open_stream(0), 1e6)
    lab.backend.run()
    assert lab.ended["copy"] == pytest.approx(4e-3)
    assert lab.backend.now() == pytest.approx(4e-3)


def test_waits_and_kernels_order_streams() -> None:
    lab = Lab()
    producer, copier = lab.backend.open_stream(0), lab.backend.open_stream(0)
    lab.backend.kernel(producer, 5e-3)
    lab.backend.wait_event(copier, lab.backend.record(producer))
    lab.copy("after", copier, 1e6)
    lab.backend.run()
    assert lab.ended["after"] == pytest.approx(6e-3)


def test_many_small_pieces_cost_their_least_time_each() -> None:
    lab = Lab(MachineModel(capacity_bps=1e9, copy_gap_s=0.0, piece_s=1e-3))
    backend = lab.backend
    pieces = Segments([lab.device.ptr] * 10, [lab.host.ptr] * 10, [10] * 10)
    backend.copy("h2d:0", backend.open_stream(0), pieces)
    backend.run()
    assert backend.now() == pytest.approx(10e-3)
