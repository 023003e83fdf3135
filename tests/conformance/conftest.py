"""One suite for every driver that is found here; a driver without a device skips with its reason."""

from __future__ import annotations

import pytest

from umsh.backends import drivers, open_device
from umsh.backends.driver import Device
from umsh.errors import DeviceError


@pytest.fixture(scope="session", params=drivers())
def device(request: pytest.FixtureRequest) -> Device:
    try:
        opened = open_device(request.param)
    except DeviceError as error:
        pytest.skip(f"driver {request.param}: {error}")
    return opened
