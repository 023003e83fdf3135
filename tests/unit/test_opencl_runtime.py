"""OpenCL candidates, quirks and waits with made-up devices: every reason is told, nothing is guessed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from umsh.backends import open_device
from umsh.backends.opencl import quirks, runtime, usm
from umsh.backends.opencl.device import OpenCLDevice
from umsh.errors import DeviceError, NeedError, WaitTimeout

cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")

FINE = cl.device_svm_capabilities.FINE_GRAIN_BUFFER
USM = "cl_intel_unified_shared_memory"


def made_up(**changes: Any) -> Any:
    """A device that shares memory by fine-grain SVM; changes are its other answers."""
    answers: dict[str, Any] = {
        "name": "made up",
        "version": "OpenCL 3.0 test",
        "compiler_available": True,
        "svm_capabilities": FINE,
        "extensions": "",
        "type": cl.device_type.GPU,
        "max_compute_units": 8,
        "platform": SimpleNamespace(name="Maker", version="OpenCL 3.0"),
    }
    return SimpleNamespace(**{**answers, **changes})


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({}, ""),
        ({"svm_capabilities": 1}, "neither fine-grain SVM nor cl_intel_unified_shared_memory"),
        ({"svm_capabilities": 0, "extensions": f"cl_khr_fp64 {USM}"}, ""),
        ({"version": "OpenCL 1.2 old"}, "OpenCL 1.2"),
        ({"compiler_available": False}, "compiler absent"),
    ],
)
def test_a_device_is_refused_by_its_missing_fact(changes: dict[str, Any], fact: str) -> None:
    found = runtime.missing_fact(made_up(**changes))
    assert fact in found
    assert bool(found) == bool(fact)


def test_every_candidates_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_devices() -> list[Any]:
        raise cl.RuntimeError("clGetDeviceIDs failed: DEVICE_NOT_FOUND")

    platforms = [
        SimpleNamespace(name="Empty", version="1", get_devices=list),
        SimpleNamespace(name="Broken", version="2", get_devices=without_devices),
        SimpleNamespace(name="Coarse", version="3", get_devices=lambda: [made_up(svm_capabilities=1)]),
    ]
    monkeypatch.setattr(cl, "get_platforms", lambda: platforms)
    with pytest.raises(DeviceError) as raised:
        runtime.opened(77, OpenCLDevice)
    text = str(raised.value)
    for part in ("Empty 1: lists no device", "DEVICE_NOT_FOUND", "neither fine-grain SVM"):
        assert part in text


def test_no_loader_platform_names_the_icd(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> list[Any]:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", none)
    with pytest.raises(DeviceError, match="ICD"):
        runtime.opened(77, OpenCLDevice)


def test_gpus_come_first_and_pocl_before_other_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pocl = SimpleNamespace(name=quirks.POCL, version="3.1")
    devices = [
        made_up(name="other cpu", type=cl.device_type.CPU),
        made_up(name="pocl", type=cl.device_type.CPU, platform=pocl),
        made_up(name="gpu"),
    ]
    all_of_them = SimpleNamespace(name="All", version="1", get_devices=lambda: devices)
    monkeypatch.setattr(cl, "get_platforms", lambda: [all_of_them])
    usable, reasons = runtime.candidates()
    assert [device.name for device in usable] == ["gpu", "pocl", "other cpu"]
    assert reasons == {}


def test_pocl_runs_as_many_groups_as_it_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    device = made_up(type=cl.device_type.CPU, platform=SimpleNamespace(name=quirks.POCL, version="3"))
    monkeypatch.delenv("POCL_MAX_PTHREAD_COUNT", raising=False)
    assert quirks.quirks_of(device).groups_max == 8
    monkeypatch.setenv("POCL_MAX_PTHREAD_COUNT", "3")
    assert quirks.quirks_of(device).groups_max == 3


def test_a_gpu_gets_no_plain_pages_unless_it_advertises_them() -> None:
    assert quirks.quirks_of(made_up()).system_note == ""


def test_usm_is_absent_by_name_without_the_extension() -> None:
    kinds = usm.usm_kinds(made_up())
    assert [kind.name for kind in kinds] == ["usm-host", "usm-shared"]
    for kind in kinds:
        assert USM in kind.absent
        assert not kind.documented


@pytest.mark.parametrize("name", ["opencl:gpu", "opencl:x"])
def test_a_device_is_named_by_its_number(name: str) -> None:
    with pytest.raises(DeviceError, match="no number"):
        open_device(name)


@pytest.fixture(scope="module")
def device() -> OpenCLDevice:
    try:
        opened = open_device("opencl:0")
    except DeviceError as error:
        pytest.skip(f"no OpenCL device: {error}")
    assert isinstance(opened, OpenCLDevice)
    return opened


def test_a_wait_times_out_and_the_work_goes_on(device: OpenCLDevice) -> None:
    gate = cl.UserEvent(device.context)
    stream = device.stream(cl.CommandQueue(device.context))
    cl.enqueue_barrier(stream.native, wait_for=[gate])
    event = stream.record()
    assert not event.done()
    with pytest.raises(WaitTimeout, match=r"0\.02"):
        event.wait(0.02)
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait(30)
    assert event.done()


def test_a_wait_wakes_when_the_work_ends(device: OpenCLDevice) -> None:
    gate = cl.UserEvent(device.context)
    stream = device.stream(cl.CommandQueue(device.context))
    cl.enqueue_barrier(stream.native, wait_for=[gate])
    timer = threading.Timer(0.1, lambda: gate.set_status(cl.command_execution_status.COMPLETE))
    timer.start()
    stream.record().wait(30)
    timer.join()


def test_failed_work_is_a_device_error(device: OpenCLDevice) -> None:
    gate = cl.UserEvent(device.context)
    gate.set_status(-5)
    from umsh.backends.opencl.stream import wait_event

    with pytest.raises(DeviceError, match="-5"):
        wait_event(gate, 1)


def test_a_queue_of_another_context_is_refused(device: OpenCLDevice) -> None:
    context = cl.Context([device.native])
    queue = cl.CommandQueue(context)
    with pytest.raises(DeviceError, match=r"device\.context"):
        device.stream(queue)


def test_a_foreign_event_is_refused(device: OpenCLDevice) -> None:
    with pytest.raises(DeviceError, match="event of object"):
        device.stream().wait_event(object())  # type: ignore[arg-type]


def test_results_may_be_asked_for_in_any_order(device: OpenCLDevice) -> None:
    memories = [device.allocate("system", 4096, "4k") for _ in range(40)]
    runs = [device.gpu.fill(memory, 0, 4096, i, "WF") for i, memory in enumerate(memories)]
    for run in reversed(runs):
        run.result(30)
    for i, memory in enumerate(memories):
        assert device.gpu.check(memory, 0, 4096, i, "RI").result(30) == 0


def test_too_many_pending_runs_are_refused_and_forgotten_ones_return(device: OpenCLDevice) -> None:
    memory = device.allocate("system", 4096, "4k")
    runs: list[Any] = []
    with pytest.raises(DeviceError, match="runs are pending"):
        runs.extend(device.gpu.fill(memory, 0, 4096, 1, "WF") for _ in range(1000))
    for run in runs:
        run.result(30)
    runs.clear()
    device.gpu.fill(memory, 0, 4096, 1, "WF").result(30)


def test_negative_sizes_are_needs(device: OpenCLDevice) -> None:
    with pytest.raises(NeedError):
        device.allocate("system", -4096, "4k")
