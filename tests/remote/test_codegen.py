"""The generator: what it refuses, so that a wrong table does not become a wrong call."""

from __future__ import annotations

import pytest

from umsh.remote.codegen.model import TableError, prototypes
from umsh.remote.codegen.rules import Rules, calls

READ = ("handle", "take", "hand", "null")
GETTER = "nvmlDeviceGetNumFans"
DEVICE = {"name": "device", "type": "nvmlDevice_t", "size": 8, "kind": "h"}


@pytest.mark.parametrize("library", ["driver", "nvml"])
def test_a_handle_by_value_is_read_by_every_call(library: str) -> None:
    """Taken for an output, it would hand the library an address of ours as its device."""
    table = prototypes()["libraries"][library]
    declared = {**table.get("older", {}), **table["functions"]}
    generated = [call for call in calls(library) if call.parameters]  # none: written by hand at both ends
    assert len(generated) > 200
    for call in generated:
        for parameter, described in zip(call.parameters, declared[call.name]["parameters"], strict=True):
            if described["kind"] == "h":
                assert parameter.role in READ, f"{call.name}: {parameter.name}"


def test_a_rule_for_outputs_leaves_handles_alone_and_an_exact_one_is_refused() -> None:
    rules = Rules("nvml", prototypes()["structs"])
    assert rules.parameter(GETTER, DEVICE, False, set()).role == "handle"
    rules.table["call"][GETTER] = {"device": "out"}
    with pytest.raises(TableError, match="no output"):
        rules.parameter(GETTER, DEVICE, False, set())


def test_text_that_a_call_writes_needs_its_room() -> None:
    """Taken for one character, it let NVML write over the stack of the session."""
    rules = Rules("nvml", prototypes()["structs"])
    name = "nvmlDeviceGetGspFirmwareVersion"
    parameters = prototypes()["libraries"]["nvml"]["functions"][name]["parameters"]
    text = next(p for p in parameters if p["name"] == "version")
    described = rules.parameter(name, text, False, set())
    assert (described.role, described.length) == ("outtext", "@64")
    rules.rules = []
    with pytest.raises(TableError, match="needs its room"):
        rules.parameter(name, text, False, set())
