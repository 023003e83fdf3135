"""write and read: whole or not at all (contract W1-W4, R1-R3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import umsh
from umsh.errors import NeedError, WaitTimeout

PAIR = np.dtype([("key", "u1"), ("value", "f8")])
MECHANISMS = ["pinned.driver:WA/RA", "pinned.driver:WF/RI", "pinned.driver:WBp/RA", "copy.4k:copy/copy"]


def gpu_bytes(region: umsh.Region) -> Any:
    memory: Any = region._keeper.memory
    return memory.gpu


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("dtype", ["f8", "f2", "i1", "c16", "?", ">u4", "M8[s]", "S3", PAIR])
def test_every_plain_dtype_arrives_whole(fake: Any, dtype: Any, mechanism: str) -> None:
    """A03: lengths come from shape and dtype, https://github.com/dusty-nv/jetson-inference/issues/1369"""
    raw = np.random.default_rng(1).integers(0, 2, 15 * np.dtype(dtype).itemsize, dtype="u1")
    sent = raw.view(dtype).reshape(3, 5)
    region = umsh.bind((3, 5), dtype, mechanism=mechanism)
    umsh.write(region, sent)
    got = umsh.read(region)
    assert got.tobytes() == sent.tobytes()
    assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
    assert gpu_bytes(region)[: sent.nbytes].tobytes() == sent.tobytes()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::-2], np.s_[..., 1:3], np.s_[None, 0]])
def test_non_contiguous_sources_arrive_whole(fake: Any, mechanism: str, view: Any) -> None:
    sent = np.arange(64, dtype="i4").reshape(8, 8)[view]
    region = umsh.bind(sent.shape, "i4", mechanism=mechanism)
    umsh.write(region, sent)
    assert (umsh.read(region) == sent).all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "array",
    [
        np.ones((5, 3), "f4"), np.ones((3, 5), "f8"), np.ones((3, 5), ">f4"), np.ones(15, "f4"),
        np.ones((3, 4), "f4"), np.float32(1), [[1.0] * 5] * 3, np.ones((3, 5), "i4"), np.ones((0, 5), "f4"),
    ],
)  # fmt: skip
def test_another_shape_or_dtype_is_refused_and_nothing_is_copied(
    fake: Any, mechanism: str, array: Any
) -> None:
    """W1"""
    region = umsh.bind((3, 5), "f4", mechanism=mechanism)
    with pytest.raises(NeedError, match=r"\(3, 5\) and float32"):
        umsh.write(region, array)
    assert not umsh.read(region).any()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_offset_writes_touch_their_own_elements_only(fake: Any, mechanism: str) -> None:
    """W4"""
    region = umsh.bind((4, 8), "i2", mechanism=mechanism)
    umsh.write(region, np.full((2, 3), 7, "i2"), offset=13)
    expected = np.zeros(32, "i2")
    expected[13:19] = 7
    assert (umsh.read(region).reshape(-1) == expected).all()
    assert (gpu_bytes(region)[:64].view("i2") == expected).all()
    for offset in (-1, 27, 33, 1 << 70):
        with pytest.raises(NeedError, match="region has 32"):
            umsh.write(region, np.full((2, 3), 9, "i2"), offset=offset)
    umsh.write(region, np.zeros(0, "i2"), offset=32)
    assert (umsh.read(region).reshape(-1) == expected).all()


def test_read_fills_out_and_refuses_one_that_does_not_fit(fake: Any) -> None:
    """R3"""
    region = umsh.bind((3, 5), "f4")
    umsh.write(region, np.ones((3, 5), "f4"))
    out = np.zeros((5, 3), "f4")
    assert umsh.read(region, out=out.T) is not None
    assert out.all()
    frozen = np.zeros((3, 5), "f4")
    frozen.setflags(write=False)
    for wrong in (np.zeros((5, 3), "f4"), np.zeros((3, 5), "f8"), frozen):
        with pytest.raises(NeedError, match="out has shape"):
            umsh.read(region, out=wrong)
        assert not wrong.any()


def test_write_on_a_stream_returns_at_once_and_lets_the_source_be_reused(fake: Any, held_stream: Any) -> None:
    """W3"""
    region = umsh.bind(8, "u1", mechanism="copy.4k:copy/copy")
    source = np.full(8, 3, "u1")
    umsh.write(region, source, stream=held_stream)
    source[:] = 0
    assert not gpu_bytes(region)[:8].any()
    with pytest.raises(WaitTimeout):  # the copy still reads what a second write would overwrite
        umsh.write(region, source, timeout_s=0)
    held_stream.complete()
    assert (gpu_bytes(region)[:8] == 3).all()


def test_read_with_a_stream_waits_for_work_it_was_not_told_of(fake: Any, held_stream: Any) -> None:
    """R2"""
    region = umsh.bind(8, "u1", mechanism="copy.4k:copy/copy")
    gpu_bytes(region)[:] = 4
    with pytest.raises(WaitTimeout):
        umsh.read(region, stream=held_stream, timeout_s=0)
    held_stream.complete()
    assert (umsh.read(region) == 4).all()


def test_read_with_a_stream_still_waits_for_work_told_of_on_another(fake: Any, held_stream: Any) -> None:
    """R2"""
    region = umsh.bind(8, "u1", mechanism="copy.4k:copy/copy")
    with region.on_gpu(stream=held_stream):
        gpu_bytes(region)[:] = 6
    with pytest.raises(WaitTimeout):
        umsh.read(region, stream=type(held_stream)(), timeout_s=0)
    held_stream.complete()
    assert (umsh.read(region) == 6).all()
