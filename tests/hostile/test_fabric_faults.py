"""The fabric under faults: clocks that jump, exits with copies in flight, callers that misbehave."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from umsh.errors import NeedError, WaitTimeout
from umsh.fabric import Fabric
from umsh.fabric.virtual import VirtualBackend

MIB = 1 << 20


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0], ids=["back", "forward"])
def test_a_clock_that_jumps_neither_hangs_nor_lends_a_burst(jump_s: float) -> None:
    server = VirtualBackend()
    fabric = Fabric(server)
    kv, bulk = fabric.flow("kv", priority=1, target_ms=5), fabric.flow("bulk", priority=1, floor=0.05)
    copies = [
        flow.copy(server.alloc("device", 512 * MIB, 0), server.alloc("pinned", 512 * MIB), ordered=False)
        for flow in (kv, bulk, kv, bulk)
    ]
    server.run(3e-3)
    server.lag_s = jump_s
    for copy in copies:
        copy.wait(timeout_s=5.0)
    queue = fabric.core.engines["h2d:0"].queues["bulk"]
    assert queue.credit_nbytes <= 0.05 * 55.3e9 * 0.2 + 2 * 8 * MIB
    assert server.clock.now_s < 1.1 * 4 * 512 * MIB / 55.3e9 + 0.01
    fabric.close()


def test_quiet_gives_up_on_a_link_that_does_not_drain_and_opens_it_again() -> None:
    server = VirtualBackend()
    fabric = Fabric(server)
    flow = fabric.flow("bulk", priority=2)
    flow.copy(server.alloc("device", 64 * MIB, 0), server.alloc("pinned", 64 * MIB), ordered=False)
    server.run(5e-5)
    with pytest.raises(WaitTimeout), fabric.quiet("h2d:0", timeout_s=1e-5):
        pass
    assert fabric.core.engines["h2d:0"].held == 0


@pytest.mark.parametrize("name", ["", "h2d", "h2d:", "h2d:x", "p2p:0", "up:0", "h2d:0>1", "h2d:0\n"])
def test_names_that_are_no_link_are_refused(name: str) -> None:
    with pytest.raises(NeedError), Fabric(VirtualBackend()).quiet(name):
        pass


def test_closing_twice_and_copying_after_close_do_no_harm() -> None:
    server = VirtualBackend()
    fabric = Fabric(server)
    flow = fabric.flow("late", priority=1)
    fabric.close()
    fabric.close()
    dst, src = server.alloc("device", MIB, 0, data=True), server.alloc("pinned", MIB, data=True)
    assert src.data is not None
    src.data.fill(3)
    flow.copy(dst, src).wait()
    assert (dst.data == 3).all()
    assert "closed" in fabric.explain("late")


def test_the_interpreter_exits_with_transfers_in_flight() -> None:
    code = """
        from umsh.fabric import Fabric
        from umsh.fabric.virtual import VirtualBackend
        server = VirtualBackend()
        fabric = Fabric(server)
        flow = fabric.flow("bulk", priority=2)
        dst, src = server.alloc("device", 1 << 26, 0, data=True), server.alloc("pinned", 1 << 26, data=True)
        src.data.fill(5)
        import atexit
        flow.copy(dst, src).add_done_callback(lambda t: print("ended", t.state, bool((dst.data == 5).all())))
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() == ["ended", "done", "True"]
