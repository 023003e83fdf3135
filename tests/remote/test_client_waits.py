"""Which calls wait for the server: those that bring something to the host, and no others."""

from __future__ import annotations

from typing import Any

import pytest

PREPARED = """
start()
on, event, address = stream(), c_void_p(), alloc(1 << 20)
ok(cu.cuEventCreate(byref(event), 0))
kernel = function("dump_8_8")
"""

NOTHING_TO_BRING = """
for i in range(200):
    ok(launch(kernel, [word(address), word(i)], on))
    ok(cu.cuEventRecord(event, on))
    ok(cu.cuStreamSynchronize(on)); ok(cu.cuEventSynchronize(event)); ok(cu.cuCtxSynchronize())
    ok(cu.cuEventQuery(event)); ok(cu.cuStreamQuery(on))
    ok(cu.cuMemcpyHtoD_v2(c_uint64(address), bytes(1024), c_size_t(1024)))
"""


def replies(loopback: Any, script: str, **environment: str) -> int:
    loopback.check(PREPARED, **environment)
    before = loopback.replies()
    loopback.check(PREPARED + script, **environment)
    return int(loopback.replies()) - before


def test_a_synchronise_with_nothing_to_bring_needs_no_round_trip(loopback: Any) -> None:
    assert replies(loopback, NOTHING_TO_BRING) == 0


def test_without_elision_every_wait_is_one(loopback: Any) -> None:
    assert replies(loopback, NOTHING_TO_BRING, UMSH_REMOTE_SWITCHES="-elide") == 200 * 5


def test_a_download_under_way_makes_the_next_wait_real_and_only_that_one(loopback: Any) -> None:
    assert replies(loopback, """
host = pinned(4096)
for i in range(10):
    ok(launch(kernel, [word(address), word(i)], on))
    ok(cu.cuMemcpyDtoHAsync_v2(host, c_uint64(address), c_size_t(4096), on))
    ok(cu.cuStreamSynchronize(on))
    assert host.raw[8:16] == word(i)
    ok(cu.cuStreamSynchronize(on)); ok(cu.cuCtxSynchronize())
""") <= 10  # fmt: skip


@pytest.mark.parametrize("mode", ["sr", "full"])
def test_ten_thousand_small_uploads_cost_no_round_trip(loopback: Any, mode: str) -> None:
    """Public report lupinemachines/lupine#761: 2.75 million tiny copies took 1,189 s."""
    script = """
for i in range(10000):
    ok(cu.cuMemcpyHtoD_v2(c_uint64(address + i % 1000 * 1024), word(i) * 128, c_size_t(1024)))
assert download(address + 999 * 1024, 8) == word(9999)
"""
    assert replies(loopback, script, UMSH_REMOTE_MODE=mode) <= 2


@pytest.mark.parametrize(("mode", "expected"), [("full", 0), ("sr", 0), ("dgsf", 2), ("naive", 64)])
def test_what_creating_objects_costs_in_each_mode(loopback: Any, mode: str, expected: int) -> None:
    script = "for i in range(64): ok(cu.cuEventCreate(byref(c_void_p()), 0))"
    # One event and one stream have been made before, each the first of its batch.
    assert abs(replies(loopback, script, UMSH_REMOTE_MODE=mode) - expected) <= 1


def test_elapsed_time_is_of_work_that_is_done(loopback: Any) -> None:
    loopback.check(PREPARED + """
ok(cu.cuEventRecord(event, on))
ok(cu.cuEventSynchronize(event))
elapsed = c_float(-1)
ok(cu.cuEventElapsedTime(byref(elapsed), event, event))
""")  # fmt: skip


def test_work_after_a_wait_is_not_taken_for_done(loopback: Any) -> None:
    asked = replies(loopback, """
ok(cu.cuStreamSynchronize(on)); ok(launch(kernel, [word(address), word(1)], on)); ok(cu.cuStreamQuery(on))
ok(cu.cuEventRecord(event, on)); ok(cu.cuEventQuery(event))
""")  # fmt: skip
    assert asked == 2


def test_handles_of_streams_belong_to_their_context_and_thread(loopback: Any) -> None:
    loopback.check(PREPARED + """
import threading
current, found = c_void_p(), c_void_p()
ok(cu.cuCtxGetCurrent(byref(current)))
ok(cu.cuStreamGetCtx(on, byref(found)))
assert found.value == current.value
assert cu.cuStreamGetCtx(c_void_p(0x5000), byref(found)) == 400
per_thread = c_void_p(2)
def other():
    ok(cu.cuCtxSetCurrent(current))
    ok(launch(kernel, [word(address), word(5)], per_thread)); ok(cu.cuStreamSynchronize(per_thread))
for _ in range(20):
    thread = threading.Thread(target=other); thread.start(); thread.join()
ok(launch(kernel, [word(address), word(6)], per_thread)); ok(cu.cuStreamSynchronize_ptsz(None))
assert download(address, 16) == word(address) + word(6)
""")  # fmt: skip
