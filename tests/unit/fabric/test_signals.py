"""Hardware counters: believed when plausible and fresh, ignored otherwise."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from umsh.errors import UnsupportedError
from umsh.fabric import Fabric
from umsh.fabric.nvml import sources
from umsh.fabric.signals import FRESH_S, Estimator, Sample
from umsh.fabric.virtual import VirtualBackend

GB = 10**9
LINK = "h2d:0"


class Lab:
    """An estimator whose own bytes are set by the test; capacity 50 GB/s."""

    def __init__(self) -> None:
        self.own = 0
        self.estimator = Estimator(lambda link: self.own, lambda link: 50.0 * GB)

    def count(self, at_s: float, count: int, own: int) -> Any:
        self.own = own
        return self.estimator.take("counter", Sample(LINK, counter=count % (1 << 32), bits=32), at_s)


@pytest.mark.parametrize("unit", [1, 1024])
def test_own_traffic_calibrates_the_unit_and_wraps_do_not_matter(unit: int) -> None:
    lab = Lab()
    start = (1 << 32) - 1000
    lab.count(0.0, start, own=0)
    first = lab.count(0.05, start + int(1.05 * GB) // unit, own=GB)
    assert first.believed
    assert first.foreign_bps == 0, "headers of our own bytes are ours"
    second = lab.count(0.1, start + int(2.05 * GB) // unit, own=GB)
    assert second.foreign_bps == pytest.approx(20 * GB, rel=0.01)


def test_without_own_traffic_the_unit_is_not_guessed() -> None:
    lab = Lab()
    lab.count(0.0, 0, own=0)
    assert not lab.count(0.1, GB, own=0).believed


@pytest.mark.parametrize(
    ("rate_bps", "own", "why"),
    [(200.0 * GB, 0, "more than"), (math.nan, 0, "number"), (1.0 * GB, 2 * GB, "less than")],
)
def test_a_reading_that_cannot_be_is_not_believed(rate_bps: float, own: int, why: str) -> None:
    lab = Lab()
    lab.estimator.take("gpm", Sample(LINK, rate_bps=0.0), 0.0)
    lab.own = own
    verdict = lab.estimator.take("gpm", Sample(LINK, rate_bps=rate_bps), 0.1)
    assert verdict is not None
    assert not verdict.believed
    assert why in verdict.why
    assert lab.estimator.foreign_bps(LINK, 0.1) == 0


def test_an_old_reading_is_not_used() -> None:
    lab = Lab()
    lab.estimator.take("gpm", Sample(LINK, rate_bps=0.0), 0.0)
    lab.estimator.take("gpm", Sample(LINK, rate_bps=10.0 * GB), 0.1)
    assert lab.estimator.foreign_bps(LINK, 0.2) == 10 * GB
    assert lab.estimator.foreign_bps(LINK, 0.2 + FRESH_S) == 0


class FakeNvml:
    """As much of the binding as the sources call; `answers` by field, None for not supported."""

    NVML_SUCCESS = 0
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, answers: dict[int, int | None], gpm: bool = False, devices: int = 1) -> None:
        self.answers, self.gpm, self.devices = answers, gpm, devices

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[Any]) -> list[Any]:  # noqa: N802
        made = []
        for field in fields:
            value = self.answers.get(field[0] if isinstance(field, tuple) else field)
            made.append(
                SimpleNamespace(nvmlReturn=3 if value is None else 0, value=SimpleNamespace(ullVal=value))
            )
        return made

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=self.gpm)

    def nvmlGpmSampleAlloc(self) -> object:  # noqa: N802
        return object()

    def nvmlGpmSampleGet(self, handle: int, sample: object) -> None: ...  # noqa: N802

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(nvmlReturn=0, value=1024.0) for _ in range(2)])

    def nvmlGpmMetricsGet(self, request: Any) -> None: ...  # noqa: N802


def test_directions_are_seen_from_the_device() -> None:
    """TX is what the device sends: device to host."""
    (source,) = sources(0, FakeNvml({197: 11, 198: 22}))
    assert [(sample.link, sample.counter) for sample in source.read()] == [("d2h:0", 11), ("h2d:0", 22)]


def test_gpm_stands_in_where_the_byte_counters_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umsh.fabric.nvml.GPM_PERIOD_S", 0.0)
    (source,) = sources(0, FakeNvml({}, gpm=True))
    assert [sample.rate_bps for sample in source.read()] == [1024.0 * (1 << 20)] * 2


def test_a_machine_without_a_driver_is_told_by_a_typed_error() -> None:
    class NotFoundError(Exception): ...

    def refuse() -> None:
        raise NotFoundError("library not found")

    missing = SimpleNamespace(
        nvmlInit=refuse, NVMLError_LibraryNotFound=NotFoundError, NVMLError_DriverNotLoaded=NotFoundError
    )
    with pytest.raises(UnsupportedError, match="no NVIDIA driver"):
        sources(0, missing)


def test_nvlink_is_told_apart_only_between_two_devices() -> None:
    answers: dict[int, int | None] = {197: 1, 198: 1, 138: 5, 139: 7}
    two = {s.name: s for s in sources(0, FakeNvml(answers, devices=2))}
    assert [s.link for s in two["nvml nvlink"].read()] == ["p2p:0>1", "p2p:1>0"]
    assert "nvml nvlink" not in {s.name for s in sources(0, FakeNvml(answers, devices=4))}


def test_nothing_that_answers_is_named() -> None:
    with pytest.raises(UnsupportedError, match="none of its traffic counters"):
        sources(0, FakeNvml({}))


def test_a_watched_fabric_hands_foreign_traffic_to_the_policy() -> None:
    with Fabric(VirtualBackend()) as fabric:
        sampler = fabric.watch([])
        sampler.estimator.take("gpm", Sample(LINK, rate_bps=0.0), -0.1)
        sampler.estimator.take("gpm", Sample(LINK, rate_bps=5.0 * GB), 0.0)
        assert fabric.core.windows.foreign_bps(LINK) == 5 * GB


def test_a_counter_that_may_have_wrapped_is_not_believed() -> None:
    lab = Lab()
    lab.count(0.0, 0, own=0)
    lab.count(0.05, GB, own=GB)
    late = lab.count(1.0, 2 * GB, own=2 * GB)  # 50 GB could have passed since: more than 32 bits of bytes
    assert not late.believed
    assert "wrapped" in late.why
