"""The CUDA backend and the dispatcher thread, over a fake of the driver calls they make."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from umsh.errors import DeviceError, NeedError, UnsupportedError
from umsh.fabric import Fabric
from umsh.fabric.cuda import CudaBackend

KIB = 1 << 10
PINNED, DEVICE = 1, 2


@pytest.fixture
def cuda(driver: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    monkeypatch.setattr("umsh.fabric.cuda.measure", lambda backend, link: 4e9)
    with Fabric(CudaBackend(driver), chunk_nbytes=64 * KIB) as made:
        yield made


def filled(driver: Any, nbytes: int, kind: int = PINNED) -> Any:
    made = driver.array(nbytes, kind)
    made[:] = np.random.default_rng(nbytes).integers(1, 255, nbytes, np.uint8)
    return made


def test_bytes_arrive_by_the_thread(cuda: Fabric, driver: Any) -> None:
    src, dst = filled(driver, 700 * KIB + 3), driver.array(700 * KIB + 3, DEVICE)
    cuda.flow("kv", priority=0).copy(dst, src).wait(5)
    assert (dst == src).all()


def test_plain_copies_start_no_thread(cuda: Fabric, driver: Any) -> None:
    threads = threading.active_count()
    src, dst = filled(driver, 64 * KIB), driver.array(64 * KIB, DEVICE)
    stream = cuda.backend.open_stream(0)
    before = driver.log.count("cuMemcpyAsync")
    cuda.flow("plain").copy(dst, src, stream=stream).wait(5)
    assert driver.log.count("cuMemcpyAsync") == before + 1
    assert threading.active_count() == threads
    assert (dst == src).all()


def test_a_copy_follows_its_producer_and_the_host_does_not_wait(cuda: Fabric, driver: Any) -> None:
    """A store read half-written blocks: https://github.com/vllm-project/vllm/pull/46278."""
    flow = cuda.flow("offload", priority=2)
    for stream in (cuda.backend.open_stream(0), None):
        src, dst = driver.array(256 * KIB, DEVICE), driver.array(256 * KIB, PINNED)
        producer = stream or cuda.backend.open_stream(0)
        driver.kernel(producer, 0.15, lambda src=src: src.fill(9))
        called = time.monotonic()
        copy = flow.copy(dst, src, stream=stream)
        assert not copy.finished()
        assert time.monotonic() - called < 0.15
        copy.wait(5)
        assert (dst == 9).all()


def test_no_wait_is_ever_put_on_the_shared_stream(cuda: Fabric, driver: Any) -> None:
    flow = cuda.flow("offload", priority=2)
    stream = cuda.backend.open_stream(0)
    driver.kernel(stream, 0.02, lambda: None)
    flow.copy(driver.array(KIB, PINNED), driver.array(KIB, DEVICE), stream=stream).wait(5)
    assert "cuStreamWaitEvent" not in driver.log


def test_scattered_pieces_go_down_as_batches(cuda: Fabric, driver: Any) -> None:
    src, dst = filled(driver, 1024 * KIB), driver.array(1024 * KIB, DEVICE)
    rows = np.arange(0, 256, 2, dtype=np.int64) * 4 * KIB
    copy = cuda.flow("kv", priority=0).copy_many(
        dst.ctypes.data + rows, src.ctypes.data + rows, np.full(len(rows), 4 * KIB)
    )
    copy.wait(5)
    assert sum(driver.batches) == len(rows)
    assert max(driver.batches) <= 4 * 64 // 4, "no chunk above its size alone"
    for row in rows:
        assert (dst[row : row + 4 * KIB] == src[row : row + 4 * KIB]).all()
        assert not dst[row + 4 * KIB : row + 8 * KIB].any()


def test_pageable_memory_is_staged_and_said_so(
    cuda: Fabric, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umsh.fabric.staging.STAGE_NBYTES", 64 * KIB)
    flow = cuda.flow("weights", priority=1)
    src = np.random.default_rng(1).integers(0, 255, 500 * KIB + 7, np.uint8)
    on_device, back = driver.array(len(src), DEVICE), np.zeros_like(src)
    flow.copy(on_device, src).wait(5)
    flow.copy(back, on_device).wait(5)
    assert (back == src).all()
    assert "staged" in cuda.explain("weights")
    assert cuda.stats()["flows"]["weights"]["transfers"] == 2


def test_capture_falls_through_to_a_captured_copy(cuda: Fabric, driver: Any) -> None:
    stream = cuda.backend.open_stream(0)
    driver.capturing.add(stream)
    flow = cuda.flow("kv", priority=0)
    src, dst = filled(driver, KIB), driver.array(KIB, DEVICE)
    assert flow.copy(dst, src, stream=stream).state == "captured"
    assert driver.captured == [(dst.ctypes.data, src.ctypes.data, KIB)]
    with pytest.raises(NeedError, match="Pageable"):
        flow.copy(dst, np.zeros(KIB, np.uint8), stream=stream)


def test_a_dead_dispatcher_releases_everything_unpaced(
    cuda: Fabric, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = cuda.flow("offload", priority=2)
    flow.pause()
    pairs = [(driver.array(200 * KIB, DEVICE), filled(driver, 200 * KIB)) for _ in range(3)]
    stream = cuda.backend.open_stream(0)
    late = driver.array(200 * KIB, DEVICE)
    driver.kernel(stream, 0.1, lambda: late.fill(5))
    copies = [flow.copy(dst, src) for dst, src in pairs]
    out = driver.array(200 * KIB, PINNED)
    copies.append(flow.copy(out, late, stream=stream))

    def broken() -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(cuda.core.windows, "run_if_due", lambda *_: broken())
    cuda.dispatcher.kick()
    for copy in copies:
        copy.wait(5)
    assert all((dst == src).all() for dst, src in pairs)
    assert (out == 5).all(), "order is kept when pacing is gone"
    assert "a fault of ours" in cuda.explain("offload")
    dst, src = pairs[0]
    dst.fill(0)
    flow.copy(dst, src).wait(5)
    assert (dst == src).all()


@pytest.mark.parametrize("call", ["cuEventQuery", "cuMemcpyAsync", "cuEventRecord"])
def test_a_lost_device_reaches_every_waiter(cuda: Fabric, driver: Any, call: str) -> None:
    flow = cuda.flow("kv", priority=0)
    src, dst = filled(driver, 8192 * KIB), driver.array(8192 * KIB, DEVICE)
    copy = flow.copy(dst, src, ordered=False)
    driver.fail = call
    with pytest.raises(DeviceError, match="LAUNCH_FAILED"):
        copy.wait(5)
    with pytest.raises(DeviceError, match="new Fabric"):
        flow.copy(dst, src)


def test_many_threads_may_use_one_fabric(cuda: Fabric, driver: Any) -> None:
    flows = [cuda.flow(f"flow {i}", priority=i % 3) for i in range(6)]
    wrong = []

    def work(index: int) -> None:
        for round_ in range(8):
            nbytes = (37 * (index + 1) * (round_ + 1)) % 300 * KIB + 1
            src, dst = filled(driver, nbytes), driver.array(nbytes, DEVICE)
            flows[index].copy(dst, src).wait(20)
            if not (dst == src).all():
                wrong.append((index, round_))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_asyncio_awaits_many(cuda: Fabric, driver: Any) -> None:
    flow = cuda.flow("kv", priority=0)
    pairs = [(driver.array(64 * KIB, DEVICE), filled(driver, 64 * KIB)) for _ in range(5)]

    async def use() -> None:
        await asyncio.gather(*(_awaited(flow.copy(dst, src)) for dst, src in pairs))

    async def _awaited(copy: Any) -> None:
        await copy

    asyncio.run(asyncio.wait_for(use(), 20))
    assert all((dst == src).all() for dst, src in pairs)


def test_a_missing_binding_is_named() -> None:
    code = (
        "import sys; sys.modules['cuda'] = None; from umsh.fabric import Fabric\n"
        "try: Fabric()\nexcept Exception as error: print(type(error).__name__, error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout.startswith(UnsupportedError.__name__), out.stderr
    assert "umsh[cuda" in out.stdout
