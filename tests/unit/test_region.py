"""Turns of a region: what each side sees, who holds it, and what is refused (contract T1-T7, D1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import NeedError, RegionBusy, TurnError, WaitTimeout

BOTH = ["pinned.driver:WA/RA", "pinned.driver:WF/RI", "pinned.driver:WBp/RA", "copy.4k:copy/copy"]


@pytest.fixture(params=BOTH)
def region(request: pytest.FixtureRequest, fake: Any) -> umsh.Region:
    return umsh.bind((4, 8), "f4", mechanism=request.param)


def gpu_bytes(region: umsh.Region) -> Any:
    """What the made-up GPU has in its memory."""
    memory: Any = region._keeper.memory
    return memory.gpu.view("f4").reshape(4, 8)


def test_a_new_region_is_zero_on_both_sides(region: umsh.Region) -> None:
    with region.on_cpu() as a:
        assert not a.any()
    with region.on_gpu():
        assert not gpu_bytes(region).any()


def test_each_side_sees_what_the_other_wrote_in_its_turn(region: umsh.Region) -> None:
    """T1"""
    for turn in range(3):
        with region.on_cpu(write=True) as a:
            a[:] = turn
        with region.on_gpu() as g:
            assert (gpu_bytes(region) == turn).all()
            assert (g.shape, g.dtype, g.nbytes) == ((4, 8), np.float32, 128)
            gpu_bytes(region)[:] = turn + 0.5
        with region.on_cpu() as a:
            assert (a == turn + 0.5).all()


def test_the_cpu_array_is_read_only_unless_write_is_asked_for(region: umsh.Region) -> None:
    with region.on_cpu() as a, pytest.raises(ValueError, match="read-only"):
        a[0, 0] = 1


def test_arithmetic_on_the_array_gives_plain_arrays(region: umsh.Region) -> None:
    with region.on_cpu(write=True) as a:
        results = [a + 1, np.sin(a), a.sum(axis=0), a == 0]
        assert {type(result) for result in results} == {np.ndarray}
        assert type(a.sum()) is np.float32
        a += 1
        assert a.sum() == 32


@pytest.mark.parametrize("other", ["on_cpu", "on_gpu"])
@pytest.mark.parametrize("first", ["on_cpu", "on_gpu"])
def test_a_turn_inside_a_turn_is_refused_naming_the_open_one(
    region: umsh.Region, first: str, other: str
) -> None:
    """T2"""
    with getattr(region, first)():
        turn = getattr(region, other)()
        with pytest.raises(RegionBusy, match=r"test_region\.py:\d+ is still open"):
            turn.__enter__()
    with getattr(region, other)():
        pass


def test_verbs_inside_a_turn_are_refused(region: umsh.Region) -> None:
    """T6"""
    with region.on_cpu():
        for verb in (lambda: umsh.read(region), lambda: umsh.write(region, np.ones((4, 8), "f4"))):
            with pytest.raises(RegionBusy, match="CPU turn"):
                verb()
        with pytest.raises(RegionBusy):
            umsh.unbind(region)


def test_a_turn_in_another_thread_is_refused_while_one_is_open(region: umsh.Region) -> None:
    caught: list[BaseException] = []

    def other() -> None:
        try:
            with region.on_gpu():
                pass
        except RegionBusy as error:
            caught.append(error)

    with region.on_cpu():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)
    assert len(caught) == 1


class Overtaken:
    """A region's guard that another thread takes and gives back just before this one does."""

    def __init__(self, region: umsh.Region, first: Callable[[], object]) -> None:
        self._region, self._first, self._guard = region, first, region._guard
        region._guard = self  # type: ignore[assignment]

    def acquire(self, blocking: bool) -> bool:
        self._region._guard = self._guard
        self._first()
        return self._guard.acquire(blocking)


def test_a_turn_that_another_thread_overtook_sees_what_that_left(region: umsh.Region) -> None:
    """T3, B6: neither the array that still lives nor the end of the region is missed."""
    kept = []

    def keep() -> None:
        with region.on_cpu() as a:
            kept.append(a[1:])

    Overtaken(region, keep)
    with pytest.raises(RegionBusy, match="still live"):
        region.on_gpu().__enter__()
    kept.clear()
    Overtaken(region, lambda: umsh.unbind(region))
    with pytest.raises(TurnError, match="was unbound"):
        region.on_gpu().__enter__()


def test_an_exception_in_the_block_ends_the_turn_and_publishes_what_was_written(region: umsh.Region) -> None:
    """T5"""

    def produce() -> None:
        with region.on_cpu(write=True) as a:
            a[0] = 7
            raise KeyError("user's own")

    with pytest.raises(KeyError, match="user's own"):
        produce()
    with region.on_gpu():
        assert (gpu_bytes(region)[0] == 7).all()
    with pytest.raises(KeyError), region.on_gpu():
        raise KeyError
    with region.on_cpu():
        pass


def test_on_gpu_with_a_stream_is_ordered_on_it_and_the_next_turn_waits(
    region: umsh.Region, held_stream: Any
) -> None:
    """T4"""
    with region.on_gpu(stream=held_stream):
        gpu_bytes(region)[:] = 5
    with pytest.raises(WaitTimeout), region.on_cpu(timeout_s=0):
        pass
    with pytest.raises(WaitTimeout):
        umsh.read(region, timeout_s=0)
    held_stream.complete()
    with region.on_cpu() as a:
        assert (a == 5).all()


def test_a_second_stream_waits_for_the_work_of_the_first(region: umsh.Region, held_stream: Any) -> None:
    second = type(held_stream)(held=True)
    with region.on_gpu(stream=held_stream):
        pass
    with region.on_gpu(stream=second):
        assert set(held_stream.events) & set(second.waited_for)
    with pytest.raises(WaitTimeout), region.on_gpu(timeout_s=0):  # without a stream it must block
        pass
    second.complete()


def test_the_direction_says_who_may_write_and_who_receives(fake: Any) -> None:
    """D1"""
    down = umsh.bind(8, "u1", direction="cpu->gpu")
    with pytest.raises(TurnError, match="not the receiver"):
        umsh.read(down)
    up = umsh.bind(8, "u1", direction="gpu->cpu")
    with pytest.raises(TurnError, match="does not write"):
        umsh.write(up, np.ones(8, "u1"))
    with pytest.raises(TurnError, match="does not write"), up.on_cpu(write=True):
        pass


def test_inside_has_no_turns_and_kernel_has_no_words(fake: Any) -> None:
    """T7"""
    inside = umsh.bind(64, "u4", boundary="inside")
    with pytest.raises(TurnError, match="no turns"), inside.on_cpu():
        pass
    kernel = umsh.bind(64, "u4")
    for use in (
        lambda: kernel.cpu,
        lambda: kernel.gpu,
        lambda: kernel.word(0),
        kernel.publish,
        kernel.refresh,
    ):
        with pytest.raises(TurnError, match='boundary="inside"'):
            use()


def test_inside_gives_both_views_of_the_same_bytes(fake: Any) -> None:
    region = umsh.bind(64, "u4", boundary="inside")
    region.cpu[3] = 9
    region.publish(12, 4)
    assert region.gpu.ptr == region.cpu.ctypes.data
    assert umsh.acquire(region.word(3)) == 9
    umsh.write(region, np.arange(64, dtype="u4"))
    assert umsh.read(region)[63] == 63
    region.refresh()
    wrongs: list[tuple[Any, Any]] = [
        (-1, 1),
        (0, 257),
        (250, 8),
        (0, -1),
        ("a", 4),
        (0, "4"),
        (1.5, 4),
        (None, 4),
    ]
    for wrong in wrongs:
        with pytest.raises(NeedError):
            region.publish(*wrong)


def test_a_region_is_a_context_that_unbinds(fake: Any) -> None:
    with umsh.bind(8, "u1") as region:
        pass
    with pytest.raises(TurnError, match="unbound"), region.on_cpu():
        pass


def test_an_exception_out_of_the_block_closes_the_region_and_keeps_memory_for_its_arrays(fake: Any) -> None:
    kept = []

    def use() -> None:
        with umsh.bind(8, "u1") as region, region.on_cpu() as a:
            kept.extend([region, a[:]])
            raise KeyError

    with pytest.raises(KeyError):
        use()
    assert not kept[1].any()
    assert not fake.freed
    with pytest.raises(TurnError):
        umsh.read(kept[0])
    kept.clear()
    assert len(fake.freed) == 1


@pytest.mark.parametrize("mechanism", ["pinned.driver:WA/RA", "pinned.driver:WF/RI", "pinned.driver:WBp/RA"])
def test_native_code_gets_the_region_as_a_struct(fake: Any, mechanism: str) -> None:
    from umsh.native import ffi

    region = umsh.bind(64, "u4", boundary="inside", mechanism=mechanism)
    native = region.native()
    assert int(ffi.cast("uintptr_t", native.struct.cpu)) == region.cpu.ctypes.data
    assert (native.struct.device, native.struct.nbytes) == (region.gpu.ptr, 256)
    native.struct.publish(native.struct, 0, 256)
    native.struct.refresh(native.struct, 128, 4)
    with pytest.raises(RegionBusy):
        umsh.unbind(region)
    del native
    umsh.unbind(region)


def test_methods_are_applied_to_the_bytes_that_changed_hands(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coherent hardware cannot show a missing flush or invalidation, so the calls are watched."""
    calls: list[tuple[str, int, int]] = []
    region = umsh.bind(64, "u1", mechanism="pinned.driver:WF/RI")
    start = region._address
    for name in ("publish", "refresh"):
        monkeypatch.setattr(region, f"_{name}", lambda at, n, name=name: calls.append((name, at - start, n)))
    with region.on_cpu() as a:
        pass
    assert calls == []
    with region.on_cpu(write=True) as a:
        a[:] = 1
    assert calls == [("publish", 0, 64)]
    umsh.write(region, np.ones((2, 2), "u1"), offset=8)
    assert calls.pop() == ("publish", 8, 4)
    with region.on_gpu():
        pass
    umsh.read(region)
    umsh.read(region)
    assert calls == [("publish", 0, 64), ("refresh", 0, 64)]
