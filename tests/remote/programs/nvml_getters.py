"""Every NVML call that changes nothing, on the first device, with arguments made from the tables."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_void_p
from typing import Any

from umsh.remote.codegen.model import Call, Parameter
from umsh.remote.codegen.rules import calls

WAITS = (
    "EventSetWait",
    "SystemEventSetWait",
    "Init",
    "Shutdown",
    "ErrorString",
    "EventSetFree",
    "SampleFree",
)
ROOM = 64


def argument(p: Parameter, device: c_void_p) -> Any:
    if p.role in ("handle", "take"):
        return device if p.kind == "NvmlDevice" else None
    if p.role == "scalar":
        return ctypes.c_uint64(0 if "ength" not in p.name and "ize" not in p.name else ROOM)
    if p.role == "versioned":
        buffer = ctypes.create_string_buffer(p.size)
        ctypes.c_uint.from_buffer(buffer).value = p.size | 1 << 24
        return buffer
    if p.role == "count":
        return byref(ctypes.c_uint(ROOM))
    if p.role == "text":
        return b""
    return ctypes.create_string_buffer(max(p.size, 8) * ROOM * 2)


def newest(call: Call, function: Any, arguments: list[Any]) -> int:
    """Structs say their version: the one that the library knows is found by trying."""
    structs = [(p, a) for p, a in zip(call.parameters, arguments, strict=True) if p.role == "versioned"]
    result = int(function(*arguments))
    for version in (2, 3, 4, 5):
        if not structs or result != 25:
            break
        for p, buffer in structs:
            ctypes.c_uint.from_buffer(buffer).value = p.size | version << 24
        result = int(function(*arguments))
    return result


def run(failed: list[str], succeeded: set[str]) -> None:
    client = os.environ.get("UMSH_TEST_LIBRARY", "libcuda.so.1").replace("libcuda", "libnvidia-ml")
    ml, device = ctypes.CDLL(client), c_void_p()
    if ml.nvmlInit_v2() or ml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)):
        failed.append("nvmlInit_v2")
        return
    for call in calls("nvml"):
        if call.unsupported or call.changes_card or not call.current or call.name[4:].startswith(WAITS):
            continue
        arguments = [argument(p, device) for p in call.parameters]
        result = newest(call, getattr(ml, call.name), arguments)
        if result:
            failed.append(f"{call.name}: {result}")
        else:
            succeeded.add(call.name)
