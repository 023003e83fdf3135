"""Options of the device suite; after an install they need `pytest -p umsh.correctness.options`."""

from __future__ import annotations

import pytest

N, SEED = 2000, 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Once, from the conftest or from -p: with --pyargs a conftest is read after the command line was."""
    group = parser.getgroup("litmus")
    if group.options:
        return
    group.addoption("--litmus-n", type=int, default=N, help="instances of each litmus test")
    group.addoption("--litmus-seed", type=int, default=SEED, help="seed of all stress")
    group.addoption("--litmus-device", default="", help="only this device, such as opencl:0 or model:stale")
