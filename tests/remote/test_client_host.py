"""Host memory that the device uses, host functions, and both inside graphs."""

from __future__ import annotations

from typing import Any


def test_a_kernel_writes_pinned_memory_that_it_was_given(remote: Any) -> None:
    """Public report lupinemachines/lupine#623."""
    remote.check("""
start()
host = pinned(4096)
kernel = function("dump_8_8")
for value in (1, 2):
    ok(launch(kernel, [word(ctypes.addressof(host)), word(value)]))
    ok(cu.cuStreamSynchronize(None))
    assert host.raw[:16] == word(ctypes.addressof(host)) + word(value)
host[100] = b"!"
ok(launch(kernel, [word(ctypes.addressof(host)), word(3)]))
host[200] = b"?"
ok(cu.cuCtxSynchronize())
assert host[100] == b"!" and host[200] == b"?" and host.raw[8:16] == word(3)
ok(cu.cuMemFreeHost(host))
""")


def test_copies_and_kernels_agree_on_pinned_memory_without_a_wait_between(remote: Any) -> None:
    remote.check("""
start()
host, address, n = pinned(4096), alloc(4096), 4096
at = ctypes.addressof(host)
kernel = function("dump_8_8")
ok(launch(kernel, [word(at), word(1)]))
ok(cu.cuMemcpyHtoDAsync_v2(c_uint64(address), host, c_size_t(n), None))
assert download(address, 16) == word(at) + word(1)
upload(address, b"d" * n)
ok(cu.cuMemcpyDtoHAsync_v2(host, c_uint64(address), c_size_t(n), None))
ok(launch(kernel, [word(at), word(2)]))
ok(cu.cuCtxSynchronize())
assert host.raw == word(at) + word(2) + b"d" * (n - 16)
""")


def test_a_device_pointer_to_host_memory_can_be_copied_from_and_to(remote: Any) -> None:
    remote.check("""
start()
host = pinned(64)
host.raw = b"h" * 64
pointer = c_uint64()
ok(cu.cuMemHostGetDevicePointer_v2(byref(pointer), host, 0))
assert download(pointer.value, 64) == b"h" * 64
ok(cu.cuMemsetD32Async(pointer, 0, c_size_t(0), None))
upload(pointer.value, b"u" * 32)
ok(cu.cuCtxSynchronize())
assert host.raw == b"u" * 32 + b"h" * 32
ok(cu.cuMemFreeHost(host))
""")


def test_managed_memory_is_seen_by_both_sides(remote: Any) -> None:
    remote.check("""
start()
address = c_uint64()
ok(cu.cuMemAllocManaged(byref(address), c_size_t(8192), 1))
view = (ctypes.c_char * 8192).from_address(address.value)
view[5000] = b"c"
ok(launch(function("dump_8_8"), [word(address.value + 4096), word(7)]))
ok(cu.cuCtxSynchronize())
assert view.raw[4096:4112] == word(address.value + 4096) + word(7) and view[5000] == b"c"
ok(cu.cuMemFree_v2(address))
""")


def test_registration_has_the_drivers_rules(remote: Any) -> None:
    remote.check("""
start()
buffer = ctypes.create_string_buffer(1 << 16)
at = ctypes.addressof(buffer)
register = lambda a, n: cu.cuMemHostRegister_v2(c_void_p(a), c_size_t(n), 0)
ok(register(at + 3, 5000))
assert register(at + 3, 5000) == 712 and register(at + 4000, 10000) == 712 and register(at, 4) == 712
assert register(at, 0) == 1 and register(0, 8) == 1
assert cu.cuMemHostUnregister(c_void_p(at + 4)) == 713
pointer = c_uint64()
ok(cu.cuMemHostGetDevicePointer_v2(byref(pointer), c_void_p(at + 3 + 16), 0))
ok(launch(function("dump_8_8"), [word(pointer.value), word(9)]))
ok(cu.cuStreamSynchronize(None))
assert buffer.raw[19:35] == word(pointer.value) + word(9)
assert buffer.raw[:19] == bytes(19) and not any(buffer.raw[35:])
ok(cu.cuMemHostUnregister(c_void_p(at + 3)))
assert cu.cuMemHostUnregister(c_void_p(at + 3)) == 713
small = ctypes.create_string_buffer(64)
ok(register(ctypes.addressof(small) + 20, 4))
""")


def test_system_calls_into_pinned_memory_work(remote: Any) -> None:
    remote.check("""
import os
start()
host = pinned(4096)
ok(launch(function("dump_8"), [word(ctypes.addressof(host))]))
ok(cu.cuCtxSynchronize())
read, write = os.pipe()
os.write(write, b"by the kernel")
assert os.readv(read, [host]) == 13 and host.raw[:13] == b"by the kernel"
""")


def test_pointers_are_described(remote: Any) -> None:
    remote.check("""
start()
def attribute(which, address, kind=c_uint):
    out = kind()
    result = cu.cuPointerGetAttribute(byref(out), which, c_uint64(address))
    return out.value if result == 0 else -result
device, host = alloc(1000), pinned(1000)
at = ctypes.addressof(host)
assert attribute(2, device + 10) == 2 and attribute(2, at + 10) == 1 and attribute(2, 4096) == -1
assert attribute(11, device + 10, c_uint64) == device and attribute(12, device + 10, c_uint64) == 1000
assert attribute(4, at + 10, c_uint64) == at + 10 and attribute(4, device, c_uint64) == -1
assert attribute(7, device, c_uint64) != attribute(7, at, c_uint64)
base, nbytes = c_uint64(), c_size_t()
ok(cu.cuMemGetAddressRange_v2(byref(base), byref(nbytes), c_uint64(device + 999)))
assert (base.value, nbytes.value) == (device, 1000)
ok(cu.cuMemFree_v2(c_uint64(device)))
assert attribute(2, device) == -1
kind, ordinal = c_uint(9), c_int(9)
table = (c_void_p * 2)(ctypes.addressof(kind), ctypes.addressof(ordinal))
ok(cu.cuPointerGetAttributes(2, (c_int * 2)(2, 9), table, c_uint64(4096)))
assert kind.value == 0 and ordinal.value == -2
""")


def test_a_host_function_has_run_when_a_wait_that_covers_it_returns(remote: Any) -> None:
    remote.check("""
start()
seen = []
@ctypes.CFUNCTYPE(None, c_void_p)
def note(data):
    seen.append(data)
@ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
def done(on, status, data):
    seen.append((status, data))
on = stream()
for i in range(1, 4):
    ok(cu.cuLaunchHostFunc(on, note, c_void_p(i)))
    ok(cu.cuStreamSynchronize(on))
    assert len(seen) == i
ok(cu.cuStreamAddCallback(on, done, c_void_p(8), 0))
ok(cu.cuCtxSynchronize())
assert seen == [1, 2, 3, (0, 8)]
assert cu.cuLaunchHostFunc(on, None, None) == 1
""")


def test_a_replay_brings_its_bytes_once_and_takes_what_pinned_memory_holds_then(remote: Any) -> None:
    """Public report lupinemachines/lupine#674."""
    remote.check("""
start()
on, address, source, to = stream(), alloc(64), pinned(64), pinned(64)
source.raw = b"1" * 64
ok(cu.cuStreamBeginCapture_v2(on, 0))
capturing = c_int()
ok(cu.cuStreamIsCapturing(on, byref(capturing)))
assert capturing.value == 1
ok(cu.cuMemcpyHtoDAsync_v2(c_uint64(address), source, c_size_t(64), on))
ok(cu.cuMemcpyDtoHAsync_v2(to, c_uint64(address), c_size_t(64), on))
graph = c_void_p()
ok(cu.cuStreamEndCapture(on, byref(graph)))
ok(cu.cuStreamIsCapturing(on, byref(capturing)))
assert capturing.value == 0 and to.raw == bytes(64)
ready = c_void_p()
ok(cu.cuGraphInstantiateWithFlags(byref(ready), graph, c_uint64(0)))
for value in b"1", b"1", b"2":
    source.raw = value * 64
    ok(cu.cuGraphLaunch(ready, on))
    ok(cu.cuStreamSynchronize(on))
    assert to.raw == value * 64
to.raw = b"mine" * 16
ok(cu.cuStreamSynchronize(on)); ok(cu.cuCtxSynchronize())
assert to.raw == b"mine" * 16
""")


def test_what_a_capture_tells_of_itself(remote: Any) -> None:
    done = remote.run("""
start()
on, status, number, graph = stream(), c_int(9), c_uint64(), c_void_p()
ask = lambda: cu.cuStreamGetCaptureInfo_v2(on, byref(status), byref(number), None, None, None)
ok(ask())
assert status.value == 0
seen = []
for _ in range(2):
    ok(cu.cuStreamBeginCapture_v2(on, 0))
    ok(ask())
    assert status.value == 1
    seen.append(number.value)
    assert cu.cuStreamGetCaptureInfo_v2(on, byref(status), None, byref(graph), None, None) == 801
    ok(cu.cuStreamEndCapture(on, byref(graph)))
assert seen[0] != seen[1]
ok(ask())
assert status.value == 0
""")
    assert done.code == 0, done.err
    assert done.err.count("cuStreamGetCaptureInfo_v2 is not supported remotely") == 1
