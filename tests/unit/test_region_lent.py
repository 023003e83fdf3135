"""What a turn lent out: counted while it lives, refused after the block (contract T3)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import RegionBusy, TurnError

try:
    import torch
except ModuleNotFoundError:
    torch: Any = None  # type: ignore[no-redef]
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

Maker = Callable[[Any], Any]
VIEWS: dict[str, Maker] = {
    "a[3:]": lambda a: a[3:],
    "a.T": lambda a: a.T,
    "a.ravel()": lambda a: a.ravel(),
    "a.view(u1)": lambda a: a.view("u1"),
    "a[3:].T[1:]": lambda a: a[3:].T[1:],
    "memoryview": memoryview,
    "frombuffer": lambda a: np.frombuffer(a, "u1"),
    "asarray": np.asarray,
    "plain view": lambda a: a.view(np.ndarray),
    "from_dlpack": np.from_dlpack,
    "torch.from_numpy": lambda a: torch.from_numpy(a),
    "torch.from_dlpack": lambda a: torch.from_dlpack(a),
    "slice of a tensor": lambda a: torch.from_numpy(a)[2:],
    "a second name": lambda a: a,
    "a broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "an iterator": lambda a: iter(a),
    "a flat iterator": lambda a: a.flat,
    "in a list": lambda a: [a],
}
USES: dict[str, Maker] = {
    "index": lambda a: a[0],
    "assign": lambda a: a.__setitem__(0, 1),
    "add": lambda a: a + 1,
    "radd": lambda a: 1 + a,
    "in-place add": lambda a: a.__iadd__(1),
    "ufunc": np.sin,
    "function": np.sum,
    "method": lambda a: a.sum(),
    "matmul": lambda a: a @ a,
    "compare": lambda a: a == 1,
    "shape": lambda a: a.shape,
    "len": len,
    "iterate": list,
    "repr": repr,
    "float": float,
    "bool": bool,
    "contains": lambda a: 1 in a,
    "copy": lambda a: np.copyto(np.ones((8, 8), "f4"), a),
    "copy into": lambda a: np.copyto(a, 1),
    "concatenate": lambda a: np.concatenate([a, a]),
    "dlpack": np.from_dlpack,
    "pickle": lambda a: __import__("pickle").dumps(a),
    "data pointer": lambda a: a.ctypes.data,
}


@pytest.fixture
def region(fake: Any) -> umsh.Region:
    return umsh.bind((8, 8), "f4")


@pytest.mark.parametrize("agent", ["on_gpu", "on_cpu"])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(m, id=n, marks=needs_torch if "tensor" in n or "torch" in n else ())
        for n, m in VIEWS.items()
    ],
)
def test_what_was_made_from_the_array_blocks_the_hand_over_until_it_is_gone(
    region: umsh.Region, make: Maker, agent: str
) -> None:
    with region.on_cpu(write=True) as a:
        made = make(a)
    for _ in range(2):
        turn = getattr(region, agent)()
        with pytest.raises(RegionBusy, match=r"1 array.* CPU turn that began at .*test_region_lent\.py:\d+"):
            turn.__enter__()
    with pytest.raises(RegionBusy):
        umsh.unbind(region)
    del made, a
    with getattr(region, agent)():
        pass


def test_the_array_itself_does_not_block_though_its_name_lives(region: umsh.Region) -> None:
    with region.on_cpu(write=True) as a:
        a[:] = 3
    with region.on_gpu():
        pass
    with region.on_cpu() as b:
        assert b.sum() == 192
    umsh.unbind(region)
    assert isinstance(a, np.ndarray)


def test_a_copy_kept_from_the_block_does_not_block(region: umsh.Region) -> None:
    with region.on_cpu() as a:
        kept = a.copy()
    with region.on_gpu():
        pass
    kept += 1
    assert kept.sum() == 64


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_array_raises_after_its_block(region: umsh.Region, use: Maker) -> None:
    with region.on_cpu(write=True) as a:
        pass
    with pytest.raises(TurnError, match="given back"):
        use(a)


@needs_torch
def test_a_tensor_returned_out_of_the_block_is_counted_though_the_array_has_no_name(
    region: umsh.Region,
) -> None:
    """The function's own name of the array dies with it; its last reference is then not a name."""

    def produce() -> Any:
        with region.on_cpu(write=True) as a:
            return torch.from_numpy(a)

    tensor = produce()
    with pytest.raises(RegionBusy), region.on_gpu():
        pass
    del tensor
    with region.on_gpu():
        pass


@needs_torch
def test_a_name_counts_once_a_tensor_outlived_the_block(region: umsh.Region) -> None:
    """The one reference left may be the name or a tensor; nobody can tell, so it blocks."""
    with region.on_cpu(write=True) as a:
        tensor = torch.from_numpy(a)
    del tensor
    with pytest.raises(RegionBusy, match="block's own array"), region.on_gpu():
        pass
    del a
    with region.on_gpu():
        pass


@needs_torch
def test_a_tensor_that_dies_in_the_block_is_forgotten(region: umsh.Region) -> None:
    with region.on_cpu(write=True) as a:
        tensor = torch.from_numpy(a)
        tensor.fill_(2)
        del tensor
    with region.on_gpu():
        pass
    assert isinstance(a, np.ndarray)


def test_an_array_that_only_a_reference_cycle_holds_does_not_block(region: umsh.Region) -> None:
    """As compiled kernels and stored exceptions leave them until the collector happens to run."""
    gc.disable()
    try:
        with region.on_cpu(write=True) as a:
            cycle: list[Any] = [a[1:]]
            cycle.append(cycle)
            del cycle, a
        with region.on_gpu():
            pass
    finally:
        gc.enable()


def test_the_gpu_view_raises_after_its_block(region: umsh.Region) -> None:
    with region.on_gpu() as g:
        assert g.ptr
    uses: list[Maker] = [
        lambda g: g.ptr, lambda g: g.arg, lambda g: g.shape, np.from_dlpack, lambda g: g.__dlpack__(),
        lambda g: g.__dlpack_device__(), lambda g: g.__cuda_array_interface__,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(TurnError, match="given back"):
            use(g)


@pytest.mark.parametrize(
    "make",
    [
        np.from_dlpack,
        pytest.param(lambda g: torch.from_dlpack(g), marks=needs_torch),
        lambda g: g.__dlpack__(),
    ],
)
def test_a_dlpack_export_of_the_gpu_view_blocks_the_hand_over(region: umsh.Region, make: Maker) -> None:
    with region.on_gpu() as g:
        made = make(g)
    with pytest.raises(RegionBusy, match="GPU turn"), region.on_cpu():
        pass
    del made
    with region.on_cpu():
        pass


def test_ten_thousand_turns_leave_nothing_behind(region: umsh.Region) -> None:
    import gc
    import tracemalloc

    def turns(count: int) -> None:
        for value in range(count):
            with region.on_cpu(write=True) as a:
                a[0, 0] = value
            with region.on_gpu() as g:
                assert g.ptr

    gc.disable()  # what a turn leaves must go by itself, not wait for the collector
    try:
        turns(100)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        turns(10_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 20_000


def test_views_under_inside_block_unbind(fake: Any) -> None:
    """B6"""
    region = umsh.bind(64, "u4", boundary="inside")
    for make in (lambda: region.cpu, lambda: region.cpu[3:], lambda: region.gpu, lambda: region.word(1)):
        made: Any = make()
        with pytest.raises(RegionBusy, match="still live"):
            umsh.unbind(region)
        del made
    umsh.unbind(region)
