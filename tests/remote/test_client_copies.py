"""Copies mean what they mean with a device of one's own; public report lupinemachines/lupine#631."""

from __future__ import annotations

from typing import Any

import pytest

MODES = ("naive", "sr", "dgsf", "full")

SIZES = """
start()
import os
piece = 4 << 20
address = alloc(3 * piece)
for nbytes in (1, 7, 16383, 16384, 16385, piece - 1, piece, piece + 1, 2 * piece + 4097):
    data = os.urandom(nbytes)
    upload(address, data)
    assert download(address, nbytes) == data, nbytes
    assert download(address + nbytes - 1, 1) == data[-1:]
"""


@pytest.mark.parametrize("mode", MODES)
def test_every_size_arrives_whole(remote: Any, mode: str) -> None:
    remote.check(SIZES, UMSH_REMOTE_MODE=mode)


def test_zero_bytes_do_nothing_even_from_a_bad_address(remote: Any) -> None:
    remote.check("""
start()
ok(cu.cuMemcpyHtoD_v2(c_uint64(0), None, c_size_t(0)))
ok(cu.cuMemcpyDtoH_v2(None, c_uint64(0), c_size_t(0)))
assert cu.cuMemcpyDtoH_v2(None, c_uint64(alloc(8)), c_size_t(8)) == 1
""")


def test_the_source_may_change_at_once_and_the_destination_may_be_read_at_once(remote: Any) -> None:
    remote.check("""
start()
on, n = stream(), 1 << 20
address = alloc(n)
for value in (b"a", b"b"):
    source = ctypes.create_string_buffer(value * n, n)
    ok(cu.cuMemcpyHtoDAsync_v2(c_uint64(address), source, c_size_t(n), on))
    ctypes.memset(source, 0, n)
    to = ctypes.create_string_buffer(n)
    ok(cu.cuMemcpyDtoHAsync_v2(to, c_uint64(address), c_size_t(n), on))
    assert to.raw == value * n
""")


def test_down_to_pinned_memory_and_up_again_without_a_wait_carries_the_new_bytes(remote: Any) -> None:
    """Public report lupinemachines/lupine#623."""
    remote.check("""
start()
on, n = stream(), 12 << 20
first, second, host = alloc(n), alloc(n), pinned(n)
upload(first, b"new!" * (n // 4))
ctypes.memset(host, 0, n)
ok(cu.cuMemcpyDtoHAsync_v2(host, c_uint64(first), c_size_t(n), on))
ok(cu.cuMemcpyHtoDAsync_v2(c_uint64(second), host, c_size_t(n), on))
ok(cu.cuStreamSynchronize(on))
assert download(second, n) == b"new!" * (n // 4) == host.raw
""")


def test_unified_copies_find_out_what_each_side_is(remote: Any) -> None:
    remote.check("""
start()
address, other = alloc(64), alloc(64)
source, to = ctypes.create_string_buffer(b"x" * 64, 64), ctypes.create_string_buffer(64)
at = ctypes.addressof
ok(cu.cuMemcpy(c_uint64(address), c_uint64(at(source)), c_size_t(64)))
ok(cu.cuMemcpy(c_uint64(at(to)), c_uint64(address), c_size_t(64)))
assert to.raw == b"x" * 64
ctypes.memset(to, 0, 64)
ok(cu.cuMemcpyAsync(c_uint64(at(to)), c_uint64(at(source)), c_size_t(64), None))
assert to.raw == b"x" * 64
""")


def test_a_copy_outside_any_allocation_is_an_error_and_later_ones_work(remote: Any) -> None:
    remote.check("""
start()
address = alloc(16)
to = ctypes.create_string_buffer(16)
assert cu.cuMemcpyDtoH_v2(to, c_uint64(4096), c_size_t(16)) == 1
upload(address, b"y" * 16)
assert download(address, 16) == b"y" * 16
host = pinned(16)
ok(cu.cuMemcpyDtoHAsync_v2(host, c_uint64(4096), c_size_t(16), None))
assert cu.cuCtxSynchronize() in (0, 1)
ok(cu.cuMemFreeHost(host))
""")


RECTANGLES = """
start()
import os
class Rectangle(ctypes.Structure):
    _fields_ = [
        (f"{side}_{name}", kind) for side in ("src", "dst") for name, kind in (
            ("x", c_size_t), ("y", c_size_t), ("type", c_uint), ("host", c_void_p), ("device", c_uint64),
            ("array", c_void_p), ("pitch", c_size_t))
    ] + [("width", c_size_t), ("height", c_size_t)]
HOST, DEVICE, UNIFIED = 1, 2, 4
width, height, host_pitch, pitch = 100, 300, 128, 512
address = alloc(pitch * (height + 10))
upload(address, bytes(pitch * (height + 10)))
source = ctypes.create_string_buffer(os.urandom(host_pitch * height), host_pitch * height)
for kind in (HOST, UNIFIED):
    to = ctypes.create_string_buffer(host_pitch * height)
    up = Rectangle(src_x=4, src_type=kind, src_pitch=host_pitch, dst_x=8, dst_y=3, dst_type=DEVICE,
                   dst_device=address, dst_pitch=pitch, width=width, height=height)
    down = Rectangle(dst_x=4, dst_type=kind, dst_pitch=host_pitch, src_x=8, src_y=3, src_type=DEVICE,
                     src_device=address, src_pitch=pitch, width=width, height=height)
    up.src_host = up.src_device = ctypes.addressof(source)
    down.dst_host = down.dst_device = ctypes.addressof(to)
    ok(cu.cuMemcpy2DAsync_v2(byref(up), None))
    ok(cu.cuMemcpy2D_v2(byref(down)))
    for y in range(height):
        row, got = source.raw[y * host_pitch:][:host_pitch], to.raw[y * host_pitch:][:host_pitch]
        assert got == bytes(4) + row[4:104] + bytes(24), y
assert download(address + 2 * pitch, pitch) == bytes(pitch)
host = pinned(host_pitch * height)
down.dst_host = down.dst_device = ctypes.addressof(host)
ok(cu.cuMemcpy2DAsync_v2(byref(down), None))
ok(cu.cuStreamSynchronize(None))
assert host.raw == to.raw
down.dst_pitch = 50
assert cu.cuMemcpy2D_v2(byref(down)) == 1
"""


@pytest.mark.parametrize("mode", MODES)
def test_rectangles_with_a_side_in_the_program(remote: Any, mode: str) -> None:
    remote.check(RECTANGLES, UMSH_REMOTE_MODE=mode)
