"""All parameter bytes of a launch arrive, whatever their shape; public report smol-machines/smolvm#896."""

from __future__ import annotations

from typing import Any

import pytest

PARAMETERS = """
start()
import os, struct
out = alloc(1 << 16)
for sizes in ([8], [8, 2], [8, 1, 8, 2, 4], [8] * 65, [8] + [1] * 199, [8, 4096]):
    kernel = function("dump_" + "_".join(map(str, sizes)))
    for attempt in range(3):
        values = [word(out), *(os.urandom(n) for n in sizes[1:])]
        ok(launch(kernel, values))
        packed = b""
        for n, value in zip(sizes, values):
            align = 1
            while align < 8 and n % (align * 2) == 0: align *= 2
            packed += bytes(-len(packed) % align) + value
        assert download(out, len(packed)) == packed, sizes
"""


@pytest.mark.parametrize("switches", ["", "-delta", "-async"])
def test_parameters(remote: Any, switches: str) -> None:
    remote.check(PARAMETERS, UMSH_REMOTE_SWITCHES=switches)


def test_a_kernel_without_parameters_needs_none(remote: Any) -> None:
    remote.check("""
start()
ok(cu.cuLaunchKernel(function("none"), 1, 1, 1, 1, 1, 1, 0, None, None, None))
assert cu.cuLaunchKernel(function("none"), 0, 1, 1, 1, 1, 1, 0, None, None, None) == 1
ok(cu.cuCtxSynchronize())
""")


def test_the_packed_form_with_and_without_the_padding_at_its_end(remote: Any) -> None:
    remote.check("""
start()
out = alloc(64)
kernel = function("dump_8_2")
for nbytes, expected in ((10, 0), (16, 0), (9, 1), (40, 1)):
    buffer = ctypes.create_string_buffer(word(out) + b"zz" + bytes(40), 50)
    size = c_size_t(nbytes)
    extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), None)
    assert cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, extra) == expected, nbytes
assert download(out, 10) == word(out) + b"zz"
""")


def test_launch_attributes_with_outputs_are_refused_not_dropped(remote: Any) -> None:
    done = remote.run("""
start()
class Config(ctypes.Structure):
    _fields_ = [("dims", c_uint * 7), ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)]
kernel = function("none")
def result(identifier):
    attribute = ctypes.create_string_buffer(identifier.to_bytes(4, "little") + bytes(68), 72)
    config = Config((c_uint * 7)(1, 1, 1, 1, 1, 1, 0), None, ctypes.addressof(attribute), 1)
    return cu.cuLaunchKernelEx(byref(config), kernel, None, None)
assert result(1) == 0 and result(13) == 801 and result(99) == 801
ok(cu.cuCtxSynchronize())
""")
    assert done.code == 0, done.err
    assert "launch attribute 13 is not supported remotely" in done.err


def test_a_failed_call_without_reply_is_returned_by_a_later_one_and_named_once(remote: Any) -> None:
    done = remote.run("""
start()
address, kernel, to = alloc(8), function("dump_8"), ctypes.create_string_buffer(8)
ok(launch(kernel, [word(address)], c_void_p(0xA506000000FFFFF0)))
assert cu.cuMemcpyDtoH_v2(to, c_uint64(address), c_size_t(8)) == 400
ok(launch(kernel, [word(address)]))
assert download(address, 8) == word(address)
""")
    assert done.err.count("umsh: launch failed on the server with result 400") == 1, done.err


def test_a_missing_function_and_a_bad_image_change_nothing(remote: Any) -> None:
    remote.check("""
start()
module, found = c_void_p(), c_void_p()
assert cu.cuModuleLoadData(byref(module), b"\\x7fELF" + bytes(60)) == 200
assert cu.cuModuleLoadData(byref(module), b"\\x01\\x02 no image") == 200
assert cu.cuModuleLoad(byref(module), b"/nonexistent") == 301
ok(cu.cuModuleLoadData(byref(module), MODULE))
assert cu.cuModuleGetFunction(byref(found), module, b"missing") == 500
ok(cu.cuModuleGetFunction(byref(found), module, b"dump_8"))
out = alloc(8)
ok(launch(found, [word(out)]))
assert download(out, 8) == word(out)
""")
