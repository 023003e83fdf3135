"""umsh-serve: who gets a session, who is refused and how, and what is left when a client is gone."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from umsh.errors import DeviceError, NeedError
from umsh.remote import hello, serve
from umsh.remote.hello import CLIENT, MAGIC, SERVER, WELCOME, Kind, Status
from umsh.remote.serve import SOFTWARE, ask_status, token_from
from umsh.remote.service import GREETINGS_MAX
from umsh.remote.sessions import BIN, Backend, describe

pytestmark = pytest.mark.skipif(not BIN.exists() or not SOFTWARE.exists(), reason="umsh-session is not built")

ALLOCATE = """
import ctypes, sys, time
cu = ctypes.CDLL("libcuda.so.1")
assert cu.cuInit(0) == 0
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0
code = cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(sys.argv[1])))
print(code, flush=True)
time.sleep(float(sys.argv[2]))
"""
ASK_AGAIN = """
sys.stdin.readline()
print(cu.cuMemGetInfo_v2(ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())), flush=True)
"""


@dataclass
class Serving:
    port: int
    process: subprocess.Popen[str]
    token_file: Path | None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def status(self) -> dict[str, Any]:
        token = self.token_file.read_text().strip() if self.token_file else None
        return ask_status(self.address, token)

    def program(self, nbytes: int, seconds: float, *options: str, then: str = "") -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "umsh.remote.run", "--server", self.address, *options, "--",
            sys.executable, "-c", ALLOCATE + then, str(nbytes), str(seconds),
        ]  # fmt: skip
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def until(self, test: Callable[[dict[str, Any]], bool], timeout_s: float = 30) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while not test(status := self.status()):
            assert time.monotonic() < end, status
            time.sleep(0.05)
        return status

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)


def client_hello(
    tables: bytes, kind: int = Kind.SESSION, major: int = hello.WIRE_MAJOR, magic: bytes = MAGIC
) -> bytes:
    return CLIENT.pack(magic, major, 0, kind, tables, bytes(32), os.getpid(), b"test", b"0")


@pytest.fixture(scope="module")
def backend() -> Backend:
    return describe(str(SOFTWARE), None)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    running: list[Serving] = []

    def one(*options: str, token_file: Path | None = None) -> Serving:
        command = [sys.executable, "-m", "umsh.remote.serve", "--device", "software", "--port", "0", *options]
        command += ["--token-file", str(token_file)] if token_file else []
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("umsh-serve: umsh software device at "):
                running.append(Serving(int(line.rsplit(":", 1)[1]), process, token_file))
                return running[-1]
        raise AssertionError("umsh-serve did not start")

    yield one
    for serving in running:
        serving.process.send_signal(signal.SIGTERM)
        serving.process.communicate(timeout=20)


def test_a_program_runs_and_the_status_shows_it(start: Callable[..., Serving]) -> None:
    serving = start()
    program = serving.program(1 << 20, 3)
    status = serving.until(lambda s: any(row["device_nbytes"] >= 1 << 20 for row in s["sessions"]))
    (row,) = status["sessions"]
    assert row["calls"] > 0
    assert row["program"].startswith("python")
    out, err = program.communicate(timeout=30)
    assert (program.returncode, out) == (0, "0\n"), err
    serving.until(lambda s: s["sessions"] == [])


def test_status_prints_a_table_and_json(start: Callable[..., Serving]) -> None:
    serving = start()
    command = [sys.executable, "-m", "umsh.remote.serve", "--status", "--server", serving.address]
    table = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "0 of 64 sessions" in " ".join(table.stdout.split())
    data = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(data.stdout)["devices"] == ["umsh software device"]


def test_a_token_is_needed_proved_and_never_sent(start: Callable[..., Serving], tmp_path: Path) -> None:
    serving = start(token_file=tmp_path / "token")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    right = serving.program(4096, 0, "--token-file", str(tmp_path / "token"))
    assert right.communicate(timeout=30)[0] == "0\n"
    without = serving.program(4096, 0)
    assert "UMSH_TOKEN" in without.communicate(timeout=30)[1]
    assert without.returncode != 0
    with pytest.raises(DeviceError, match="token"):
        ask_status(serving.address, "wrong")
    with pytest.raises(DeviceError, match="token"):
        ask_status(serving.address, None)
    assert serving.status()["refused"] >= 2


def test_an_address_that_others_reach_needs_a_proof() -> None:
    """ggml-org/llama.cpp#25289: https://github.com/ggml-org/llama.cpp/issues/25289"""
    command = [
        sys.executable,
        "-m",
        "umsh.remote.serve",
        "--device",
        "software",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "--token-file" in done.stderr


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("secret\n")
    (tmp_path / "open").chmod(0o644)
    with pytest.raises(NeedError, match="chmod 600"):
        token_from(tmp_path / "open")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: gpubox\r\n\r\n" + bytes(200), Status.BAD_HELLO),
        (bytes(range(256)), Status.BAD_HELLO),
        (client_hello(bytes(32)), Status.TABLES_MISMATCH),
        (client_hello(bytes(32), major=0), Status.VERSION_MISMATCH),
        (client_hello(bytes(32), major=9), Status.VERSION_MISMATCH),
        (client_hello(bytes(32), kind=77), Status.BAD_HELLO),
    ],
    ids=["http", "bytes", "tables", "older", "newer", "kind"],
)
def test_a_wrong_hello_gets_a_reason(start: Callable[..., Serving], data: bytes, status: Status) -> None:
    """https://github.com/ggml-org/llama.cpp/pull/12465 and https://github.com/lupinemachines/lupine/issues/428"""
    serving = start()
    with serving.raw() as end:
        end.sendall(data[: CLIENT.size])
        magic, _, _, got, _, text = SERVER.unpack(hello.exactly(end, SERVER.size))
        assert (magic, got) == (MAGIC, status)
        assert hello.text_of(text)
        assert end.recv(1) == b""
    assert serving.status()["sessions"] == []


def test_a_version_mismatch_names_both_versions(start: Callable[..., Serving]) -> None:
    """https://github.com/ggml-org/llama.cpp/pull/12465"""
    with start().raw() as end:
        end.sendall(client_hello(bytes(32), major=9))
        text = hello.text_of(SERVER.unpack(hello.exactly(end, SERVER.size))[5])
    assert "9.0" in text
    assert f"{hello.WIRE_MAJOR}.{hello.WIRE_MINOR}" in text


def test_silent_connections_cost_nothing_for_long(start: Callable[..., Serving]) -> None:
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
    start: Callable[..., Serving], backend: Backend, frame: bytes
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
def test_memory_of_a_killed_client_comes_back(start: Callable[..., Serving], kill: signal.Signals) -> None:
    """https://github.com/lupinemachines/lupine/pull/508"""
    serving = start()
    program = serving.program(64 << 20, 60)
    serving.until(lambda s: any(row["device_nbytes"] >= 64 << 20 for row in s["sessions"]))
    program.send_signal(kill)
    serving.until(lambda s: s["sessions"] == [], timeout_s=10)
    program.communicate(timeout=10)


def test_a_full_server_says_so(start: Callable[..., Serving]) -> None:
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


def test_a_memory_limit_is_an_error_of_that_call(start: Callable[..., Serving]) -> None:
    serving = start("--memory-limit", str(8 << 20))
    program = serving.program(64 << 20, 0)
    assert program.communicate(timeout=30)[0] == "2\n"  # CUDA_ERROR_OUT_OF_MEMORY
    assert serving.program(1 << 20, 0).communicate(timeout=30)[0] == "0\n"


def test_many_clients_at_once(start: Callable[..., Serving]) -> None:
    serving = start()
    programs = [serving.program(1 << 20, 0) for _ in range(64)]
    assert [program.communicate(timeout=120)[0] for program in programs] == ["0\n"] * 64
    status = serving.until(lambda s: s["sessions"] == [])
    assert status["sessions_started"] == 64


def test_a_server_that_is_gone_is_an_error_of_the_program_and_of_the_status(
    start: Callable[..., Serving],
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


def test_both_ends_tell_the_same_version() -> None:
    """The client library is native and does not ask Python; its text is of use only in messages."""
    source = Path(serve.__file__).parent / "native" / "client" / "hello.cpp"
    told = re.search(r'#define UMSH_VERSION "([^"]+)"', source.read_text())
    assert told
    assert told[1] == version("umsh")
