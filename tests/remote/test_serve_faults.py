"""umsh-serve under attack: wrong hellos, hostile frames, killed clients, a full server, a lost server."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from umsh.errors import DeviceError
from umsh.remote import hello
from umsh.remote.hello import CLIENT, MAGIC, SERVER, WELCOME, Status
from umsh.remote.serve import SOFTWARE
from umsh.remote.service import GREETINGS_MAX
from umsh.remote.sessions import BIN, Backend, describe

pytestmark = pytest.mark.skipif(not BIN.exists() or not SOFTWARE.exists(), reason="umsh-session is not built")

ASK_AGAIN = """
sys.stdin.readline()
print(cu.cuMemGetInfo_v2(ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())), flush=True)
"""


@pytest.fixture(scope="module")
def backend() -> Backend:
    return describe(str(SOFTWARE), None)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: gpubox\r\n\r\n" + bytes(200), Status.BAD_HELLO),
        (bytes(range(256)), Status.BAD_HELLO),
        ({"tables": bytes(32)}, Status.TABLES_MISMATCH),
        ({"tables": bytes(32), "major": 0}, Status.VERSION_MISMATCH),
        ({"tables": bytes(32), "major": 9}, Status.VERSION_MISMATCH),
        ({"tables": bytes(32), "kind": 77}, Status.BAD_HELLO),
    ],
    ids=["http", "bytes", "tables", "older", "newer", "kind"],
)
def test_a_wrong_hello_gets_a_reason(
    start: Callable[..., Any],
    client_hello: Callable[..., bytes],
    data: bytes | dict[str, Any],
    status: Status,
) -> None:
    """https://github.com/ggml-org/llama.cpp/pull/12465 and https://github.com/lupinemachines/lupine/issues/428"""
    serving = start()
    with serving.raw() as end:
        end.sendall((data if isinstance(data, bytes) else client_hello(**data))[: CLIENT.size])
        magic, _, _, got, _, text = SERVER.unpack(hello.exactly(end, SERVER.size))
        assert (magic, got) == (MAGIC, status)
        assert hello.text_of(text)
        assert end.recv(1) == b""
    assert serving.status()["sessions"] == []


def test_a_version_mismatch_names_both_versions(
    start: Callable[..., Any], client_hello: Callable[..., bytes]
) -> None:
    """https://github.com/ggml-org/llama.cpp/pull/12465"""
    with start().raw() as end:
        end.sendall(client_hello(bytes(32), major=9))
        text = hello.text_of(SERVER.unpack(hello.exactly(end, SERVER.size))[5])
    assert "9.0" in text
    assert f"{hello.WIRE_MAJOR}.{hello.WIRE_MINOR}" in text


def test_silent_connections_cost_nothing_for_long(start: Callable[..., Any]) -> None:
    """Slow peers hold one of 64 places in the hello for 5 s, then they are gone and the next is served."""
    serving = start()
    silent = [serving.raw() for _ in range(GREETINGS_MAX)]
    silent[0].sendall(MAGIC)
    assert serving.status()["sessions"] == []  # within its own limit of 10 s
    serving.until(lambda s: s["refused"] == GREETINGS_MAX)
    for end in silent:
        end.close()


@pytest.mark.parametrize(
    "frame",
    [
        (1 << 31).to_bytes(4, "little") + bytes(12),  # a length beyond every limit
        (0xFFFFFFFF).to_bytes(4, "little") + b"\xff" * 12,
        (0).to_bytes(4, "little")
        + (0xFFF0).to_bytes(2, "little")
        + (1).to_bytes(2, "little")
        + (1).to_bytes(8, "little"),
        (8).to_bytes(4, "little")
        + (18).to_bytes(2, "little")
        + (1).to_bytes(2, "little")
        + (7).to_bytes(8, "little")
        + b"short...",
    ],
    ids=["length", "ones", "op", "sequence"],
)
def test_a_hostile_frame_ends_its_own_session_only(
    start: Callable[..., Any], backend: Backend, client_hello: Callable[..., bytes], frame: bytes
) -> None:
    """https://github.com/ggml-org/llama.cpp/issues/26825 and https://github.com/apache/tvm/pull/17377"""
    serving = start()
    other = serving.program(4096, 2)
    with serving.raw() as end:
        end.sendall(client_hello(backend.tables))
        assert SERVER.unpack(hello.exactly(end, SERVER.size))[3] == Status.OK
        assert WELCOME.unpack(hello.exactly(end, WELCOME.size))[0] == Status.OK
        end.sendall(frame)
        end.settimeout(20)
        while end.recv(4096):
            pass
    out, err = other.communicate(timeout=30)
    assert (other.returncode, out) == (0, "0\n"), err
    serving.until(lambda s: s["sessions"] == [])


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_memory_of_a_killed_client_comes_back(start: Callable[..., Any], kill: signal.Signals) -> None:
    """https://github.com/lupinemachines/lupine/pull/508"""
    serving = start()
    program = serving.program(64 << 20, 60)
    serving.until(lambda s: any(row["device_nbytes"] >= 64 << 20 for row in s["sessions"]))
    program.send_signal(kill)
    serving.until(lambda s: s["sessions"] == [], timeout_s=10)
    program.communicate(timeout=10)


def test_a_full_server_says_so(start: Callable[..., Any]) -> None:
    serving = start("--sessions-max", "1")
    first = serving.program(4096, 60)
    serving.until(lambda s: len(s["sessions"]) == 1)
    second = serving.program(4096, 0)
    _, err = second.communicate(timeout=30)
    assert second.returncode != 0
    assert "--sessions-max" in err
    first.kill()
    first.communicate(timeout=10)
    serving.until(lambda s: s["sessions"] == [])
    third = serving.program(4096, 0)
    assert third.communicate(timeout=30)[0] == "0\n"


def test_a_memory_limit_is_an_error_of_that_call(start: Callable[..., Any]) -> None:
    serving = start("--memory-limit", str(8 << 20))
    program = serving.program(64 << 20, 0)
    assert program.communicate(timeout=30)[0] == "2\n"  # CUDA_ERROR_OUT_OF_MEMORY
    assert serving.program(1 << 20, 0).communicate(timeout=30)[0] == "0\n"


def test_many_clients_at_once(start: Callable[..., Any]) -> None:
    serving = start()
    programs = [serving.program(1 << 20, 0) for _ in range(64)]
    assert [program.communicate(timeout=120)[0] for program in programs] == ["0\n"] * 64
    status = serving.until(lambda s: s["sessions"] == [])
    assert status["sessions_started"] == 64


def test_a_server_that_is_gone_is_an_error_of_the_program_and_of_the_status(
    start: Callable[..., Any],
) -> None:
    serving = start()
    program = serving.program(4096, 0, then=ASK_AGAIN)
    serving.until(lambda s: any(row["device_nbytes"] for row in s["sessions"]))
    serving.process.send_signal(signal.SIGTERM)
    serving.process.wait(timeout=20)
    out, err = program.communicate(input="\n", timeout=60)
    assert (program.returncode, out) == (0, "0\n46\n"), err  # CUDA_ERROR_DEVICE_UNAVAILABLE
    assert "is lost" in err
    with pytest.raises(DeviceError, match="No umsh-serve answers"):
        serving.status()
