"""pytest-benchmark's face of the definitions: one item a benchmark, point and candidate; data must verify."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from umsh.backends import open_device
from umsh.errors import DeviceError, FileError, OutOfMemory, UnsupportedError
from umsh.microbench.catalogue import benchmarks
from umsh.microbench.definition import Rig

ROUNDS, WARM_UP = 5, 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    try:
        device = open_device()
    except DeviceError as error:
        reason = pytest.mark.skip(reason=str(error))
        metafunc.parametrize("point", [pytest.param(None, marks=reason, id="no device")])
        return
    found = []
    for key, definition in benchmarks().items():
        if missing := definition.applies(device):
            found.append(pytest.param(None, marks=pytest.mark.skip(reason=missing), id=key))
            continue
        for parameters in definition.parameters(device, True):
            for subject, missing in definition.subjects(device, parameters).items():
                shown = "-".join(f"{name}={value}" for name, value in parameters.items())
                marks = [pytest.mark.skip(reason=missing)] if missing else []
                point = (definition, parameters, subject)
                found.append(pytest.param(point, marks=marks, id=f"{key}-{shown}-{subject}"))
    metafunc.parametrize("point", found)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig(open_device()) as made:
        yield made


def test_benchmark(benchmark, rig, point) -> None:  # type: ignore[no-untyped-def]
    definition, parameters, subject = point
    benchmark.group = f"{definition.key} {dict(parameters)}"
    samples = []
    try:
        definition.run(rig, subject, parameters)
    except (OutOfMemory, UnsupportedError, FileError) as error:
        pytest.skip(error.state)
    benchmark.pedantic(
        lambda: samples.append(definition.run(rig, subject, parameters)), rounds=ROUNDS, warmup_rounds=WARM_UP
    )
    first = next(iter(definition.units))
    benchmark.extra_info[f"{first} [{definition.units[first]}]"] = [s.values.get(first) for s in samples]
    assert all(sample.verified for sample in samples)
