"""How a session begins, what it refuses, and what a fork makes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from umsh.remote.relay import Network, Relay


def test_without_a_server_there_is_no_device_and_the_reason_is_said(loopback: Any) -> None:
    loopback.process.kill()
    loopback.process.wait()
    done = loopback.run("print(cu.cuInit(0)); print(cu.cuCtxSynchronize())")
    assert done.out.split() == ["100", "3"]
    assert "no device: cannot use 127.0.0.1" in done.err


def test_calls_before_initialisation_say_so(loopback: Any) -> None:
    assert loopback.check("print(cu.cuCtxSynchronize(), cu.cuMemFree_v2(c_uint64(0)))").split() == ["3", "3"]


@pytest.mark.parametrize("token", ["right", "wrong", ""])
def test_the_token_is_proved(start_loopback: Callable[..., Any], token: str) -> None:
    server = start_loopback(LOOPBACK_TOKEN="right")
    done = server.run("print(cu.cuInit(0))", UMSH_TOKEN=token)
    assert done.out.strip() == ("0" if token == "right" else "100")
    assert {"right": "", "wrong": "refused the token", "": "asks for a token"}[token] in done.err


def test_values_that_are_not_understood_are_refused_with_what_would_be(loopback: Any) -> None:
    done = loopback.run("print(cu.cuInit(0))", UMSH_REMOTE_MODE="fast")
    assert done.out.strip() == "100"
    assert "one of naive, sr, dgsf, full" in done.err
    done = loopback.run("print(cu.cuInit(0))", UMSH_REMOTE_SWITCHES="+warp")
    assert done.out.strip() == "100"
    assert "elide" in done.err


def test_a_child_of_a_running_client_is_not_initialised_and_the_parent_goes_on(loopback: Any) -> None:
    loopback.check("""
start()
import os
address = alloc(64)
child = os.fork()
if child == 0:
    to = ctypes.create_string_buffer(8)
    results = {cu.cuInit(0), cu.cuCtxSynchronize(), cu.cuMemcpyDtoH_v2(to, c_uint64(address), c_size_t(8))}
    os._exit(0 if results == {3} else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
upload(address, b"p" * 64)
assert download(address, 64) == b"p" * 64
""")


def test_a_child_of_a_process_that_has_not_begun_connects_itself(loopback: Any) -> None:
    loopback.check("""
import os
child = os.fork()
if child == 0:
    start()
    os._exit(0 if len(download(alloc(8), 8)) == 8 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
start()
""")


def test_a_lost_server_is_an_error_of_every_later_call_and_said_once(loopback: Any) -> None:
    done = loopback.run(
        """
import os, signal, time
start()
address = alloc(64)
os.kill(int(os.environ["SERVER_PID"]), signal.SIGKILL)
to = ctypes.create_string_buffer(8)
assert cu.cuMemcpyDtoH_v2(to, c_uint64(address), c_size_t(8)) == 46
assert cu.cuCtxSynchronize() == 46 and cu.cuMemFree_v2(c_uint64(address)) == 46
""",
        SERVER_PID=str(loopback.process.pid),
    )
    assert done.code == 0, done.err
    assert done.err.count("is lost") == 1


def test_a_network_that_swallows_everything_is_noticed(loopback: Any) -> None:
    """Public report lupinemachines/lupine#508: no reset ever comes. Takes the 30 s that a peer is given."""
    relay = Relay("127.0.0.1", loopback.port, Network())
    threading.Timer(5, relay.freeze).start()
    done = loopback.run(
        """
start()
import time
address = alloc(64)
time.sleep(7)
to = ctypes.create_string_buffer(8)
assert cu.cuMemcpyDtoH_v2(to, c_uint64(address), c_size_t(8)) == 46
""",
        UMSH_SERVER=f"127.0.0.1:{relay.port}",
    )
    relay.close()
    assert done.code == 0, done.err
    assert "sent nothing for 30 s" in done.err


def test_contexts_belong_to_the_thread(loopback: Any) -> None:
    loopback.check("""
import threading
start()
seen = []
def other():
    current = c_void_p()
    ok(cu.cuCtxGetCurrent(byref(current)))
    seen.append((current.value, cu.cuCtxSynchronize()))
thread = threading.Thread(target=other); thread.start(); thread.join()
assert seen == [(None, 201)]
device = c_int(-1)
ok(cu.cuCtxGetDevice(byref(device)))
assert device.value == 0
popped = c_void_p()
ok(cu.cuCtxPopCurrent_v2(byref(popped)))
assert cu.cuCtxGetDevice(byref(device)) == 201
ok(cu.cuCtxPushCurrent_v2(popped))
assert cu.cuCtxPushCurrent_v2(c_void_p(0x1234)) == 201
""")


def test_symbols_are_found_by_name_and_private_tables_are_not(loopback: Any) -> None:
    done = loopback.run("""
found, status = c_void_p(), c_int()
ok(cu.cuGetProcAddress_v2(b"cuMemAlloc", byref(found), 12000, c_uint64(0), byref(status)))
assert found.value == ctypes.cast(cu.cuMemAlloc_v2, c_void_p).value and status.value == 0
assert cu.cuGetProcAddress_v2(b"cuNothing", byref(found), 12000, c_uint64(0), byref(status)) == 500
assert status.value == 1
table = c_void_p()
assert cu.cuGetExportTable(byref(table), bytes(16)) == 500
ok(cu.cuGetExportTable(byref(table), b"\\xda\\x91\\x51\\xd3" + bytes(12)))
entry = ctypes.CFUNCTYPE(c_int)(ctypes.cast(table, ctypes.POINTER(c_void_p))[1])
assert entry() == 801
""")
    assert done.code == 0, done.err
    assert "-cudart shared" in done.err


def test_many_threads_share_the_connection(loopback: Any) -> None:
    loopback.check("""
import threading
start()
current = c_void_p()
ok(cu.cuCtxGetCurrent(byref(current)))
failures = []
def work(number):
    try:
        ok(cu.cuCtxSetCurrent(current))
        kernel, out = function("dump_8_8"), alloc(16)
        for i in range(300):
            ok(launch(kernel, [word(out), word(number * 1000 + i)]))
            if i % 50 == 0:
                assert download(out, 16) == word(out) + word(number * 1000 + i)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failures, failures
""")
