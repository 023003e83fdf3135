"""Every driver's device: facts, streams, events, memory figures, opening."""

from __future__ import annotations

import pytest

from umsh.backends import drivers, facts_of, open_device, platform_of, platforms
from umsh.backends.driver import Device
from umsh.errors import DeviceError

SECONDS = 30.0


def test_facts_are_scalars_with_the_driver_version(device: Device) -> None:
    facts = facts_of(device)
    assert all(isinstance(value, str | int | float | bool) for value in facts.values())
    assert facts["driver_version"]
    assert facts["kernel"]


def test_kinds_are_named_once_and_absent_ones_say_why(device: Device) -> None:
    names = [kind.name for kind in device.memory_kinds()]
    assert len(names) == len(set(names))
    assert any(not kind.absent for kind in device.memory_kinds())
    for kind in device.memory_kinds():
        assert not (kind.absent and (kind.documented or kind.inside)), kind.name


def test_a_safe_default_is_documented_here(device: Device) -> None:
    if device.provenance != "measured":
        pytest.skip(f"driver {device.driver}: modelled, never a default")
    found = platform_of(device)
    assert found is not None
    platform, evidence = found
    assert evidence
    kinds = {kind.name: kind for kind in device.memory_kinds() if not kind.absent}
    safe = [name.partition(".")[0] for name in platform.safe_mechanisms]
    assert any(name in kinds and kinds[name].documented for name in safe)


def test_usable_memory_is_a_part_of_the_total(device: Device) -> None:
    usable, total, source = device.memory_info()
    assert 0 <= usable <= total
    assert source


def test_the_clock_never_goes_back(device: Device) -> None:
    first = device.clock_ns()
    assert device.clock_ns() >= first


def test_events_complete_in_stream_order(device: Device) -> None:
    stream = device.stream()
    first = stream.record()
    stream.wait_event(first)
    second = stream.record()
    second.wait(SECONDS)
    assert first.done()
    assert second.done()
    stream.synchronize(SECONDS)


def test_what_is_no_stream_is_refused(device: Device) -> None:
    if device.provenance != "measured":
        pytest.skip(f"driver {device.driver}: modelled, has no streams of a user's own")
    with pytest.raises(DeviceError):
        device.stream(object())


def test_a_device_opened_twice_is_one_device(device: Device) -> None:
    if device.provenance != "measured":
        pytest.skip(f"driver {device.driver}: modelled, opened anew each time")
    assert open_device(f"{device.driver}:{device.index}") is device


def test_opening_names_every_reason() -> None:
    with pytest.raises(DeviceError, match="names no driver") as raised:
        open_device("nosuch:0")
    assert all(name in str(raised.value) for name in drivers())
    with pytest.raises(DeviceError) as raised:
        open_device(99)
    assert "opencl" in str(raised.value)


def test_platforms_are_named_as_their_files() -> None:
    assert "host" in {platform.name for platform in platforms()}
