"""NVML over the wire: questions of monitors, lists with room, versions, settings refused by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

START = """
ml = ctypes.CDLL(os.environ["UMSH_TEST_LIBRARY"].replace("libcuda", "libnvidia-ml"))
device, number, text = c_void_p(), c_uint(), ctypes.create_string_buffer(96)
ok(ml.nvmlInit_v2())
ok(ml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)))
"""


def test_a_monitor_sees_the_servers_device_without_a_context(software: Any) -> None:
    software.check(
        START
        + """
ok(ml.nvmlDeviceGetCount_v2(byref(number)))
assert number.value == 1
ok(ml.nvmlDeviceGetName(device, text, c_uint(96)))
assert text.value == b"umsh software device"
assert ml.nvmlDeviceGetName(device, text, c_uint(4)) == 7
ok(ml.nvmlDeviceGetUUID(device, text, c_uint(96)))
again = c_void_p()
ok(ml.nvmlDeviceGetHandleByUUID(text, byref(again)))
assert again.value == device.value
assert ml.nvmlDeviceGetHandleByUUID(b"GPU-none", byref(again)) == 6
assert ml.nvmlDeviceGetHandleByIndex_v2(7, byref(again)) == 2
"""
    )


def test_a_list_says_how_much_room_it_needs(software: Any) -> None:
    software.check(
        START
        + """
assert ml.nvmlDeviceGetSupportedMemoryClocks(device, byref(number), None) == 7
assert number.value == 3
clocks = (c_uint * 3)()
ok(ml.nvmlDeviceGetSupportedMemoryClocks(device, byref(number), clocks))
assert list(clocks) == [2619, 1593, 345]
"""
    )


def test_a_struct_travels_with_the_size_of_its_version(software: Any) -> None:
    software.check(
        START
        + """
class Info(ctypes.Structure):
    _fields_ = [("version", c_uint), *((name, c_uint64) for name in ("total", "reserved", "free", "used"))]
info = Info(ctypes.sizeof(Info) | 2 << 24)
ok(ml.nvmlDeviceGetMemoryInfo_v2(device, byref(info)))
assert info.total == 1 << 30
assert ml.nvmlDeviceGetMemoryInfo_v2(device, byref(Info(ctypes.sizeof(Info) | 9 << 24))) == 25
"""
    )


def test_what_changes_the_card_is_refused_unless_the_server_allows_it(
    start_software: Callable[..., Any],
) -> None:
    ask = START + "\nok(ml.nvmlDeviceGetPowerManagementLimit(device, byref(number)))\n"
    change = "assert ml.nvmlDeviceSetPowerManagementLimit(device, c_uint(200000)) == {result}\n"
    again = (
        "ok(ml.nvmlDeviceGetPowerManagementLimit(device, byref(number)))\nassert number.value == {limit}\n"
    )
    start_software().check(ask + change.format(result=4) + again.format(limit=300000))
    start_software("--allow-card-changes").check(ask + change.format(result=0) + again.format(limit=200000))


def test_a_made_up_device_never_reaches_the_servers_library(software: Any) -> None:
    software.check(
        START
        + """
made_up = c_void_p(0x41414141)
assert ml.nvmlDeviceGetName(made_up, text, c_uint(96)) == 2
ok(ml.nvmlDeviceGetName(device, text, c_uint(96)))
"""
    )


def test_errors_have_their_names_and_init_counts(software: Any) -> None:
    software.check(
        START
        + """
ml.nvmlErrorString.restype = ctypes.c_char_p
assert ml.nvmlErrorString(3) == b"Not Supported" and ml.nvmlErrorString(12345) == b"Unknown Error"
ok(ml.nvmlInit_v2())
ok(ml.nvmlShutdown())
ok(ml.nvmlShutdown())
assert ml.nvmlShutdown() == 1
"""
    )
