"""umsh-run: what the program gets to see, what is refused, and TLS."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from umsh.errors import DeviceError, NeedError
from umsh.remote.relay import Network, Relay
from umsh.remote.run import environment, links_runtime_statically, read_token, run_child
from umsh.remote.tunnel import Tunnel


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    (tmp_path / "libcuda.so.1").touch()
    return tmp_path


def test_the_program_finds_the_libraries_first_and_keeps_its_own(libraries: Path) -> None:
    made = environment(
        {"LD_LIBRARY_PATH": "/a:/b", "HOME": "/h"}, "gpu:7317", "secret", "sr", "+elide", libraries
    )
    assert made["LD_LIBRARY_PATH"] == f"{libraries}:/a:/b"
    assert made["HOME"] == "/h"
    assert "LD_PRELOAD" not in made
    assert [made[k] for k in ("UMSH_SERVER", "UMSH_TOKEN", "UMSH_REMOTE_MODE", "UMSH_REMOTE_SWITCHES")] == [
        "gpu:7317", "secret", "sr", "+elide",
    ]  # fmt: skip


def test_the_runtime_library_is_preloaded_where_there_is_one(libraries: Path) -> None:
    (libraries / "libcudart.so.13").touch()
    made = environment({"LD_PRELOAD": "/x.so"}, "gpu:1", libraries=libraries)
    assert made["LD_PRELOAD"] == f"{libraries / 'libcudart.so.13'}:/x.so"


def test_what_cannot_work_is_refused_before_anything_starts(libraries: Path, tmp_path: Path) -> None:
    with pytest.raises(NeedError, match="no mode 'fast'"):
        environment({}, "gpu:1", mode="fast", libraries=libraries)
    with pytest.raises(NeedError, match="not built"):
        environment({}, "gpu:1", libraries=tmp_path / "nowhere")


def test_a_token_file_is_read_only_when_it_is_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\nmore\n")
    path.chmod(0o644)
    with pytest.raises(NeedError, match="Others may read"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == "abc"
    assert read_token(None) is None
    path.write_text("\n")
    with pytest.raises(NeedError, match="is empty"):
        read_token(path)
    with pytest.raises(NeedError, match="cannot be read"):
        read_token(tmp_path / "none")


def test_the_programs_end_is_passed_on() -> None:
    assert run_child([sys.executable, "-c", "raise SystemExit(7)"], os.environ) == 7
    assert run_child([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], os.environ) == 137


def test_a_program_with_a_runtime_of_its_own_is_recognised(tmp_path: Path) -> None:
    static, shared, text = tmp_path / "static", tmp_path / "shared", tmp_path / "text"
    static.write_bytes(b"\x7fELF" + bytes(5000) + b"libcudart_static_955d0e85" + bytes(10))
    shared.write_bytes(b"\x7fELF" + b"libcudart.so.13" + bytes(5000))
    text.write_bytes(b"#!/bin/sh\necho libcudart_static_1\n")
    assert [links_runtime_statically(path) for path in (static, shared, text)] == [True, False, False]


def echo(listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
    while True:
        try:
            end, _ = listener.accept()
        except OSError:
            return
        try:
            end = context.wrap_socket(end, server_side=True) if context else end
            while data := end.recv(65536):
                end.sendall(data)
        except OSError:
            pass
        end.close()


@pytest.fixture
def echo_server() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=echo, args=(listener,), daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def exchange(end: socket.socket, nbytes: int) -> bytes:
    got = bytearray()
    sender = threading.Thread(target=end.sendall, args=(bytes(range(256)) * (nbytes // 256),))
    sender.start()
    while len(got) < nbytes:
        data = end.recv(65536)
        assert data
        got += data
    sender.join()
    return bytes(got)


def test_the_relay_keeps_every_byte_and_the_delay_is_at_least_what_was_asked(echo_server: int) -> None:
    relay = Relay("127.0.0.1", echo_server, Network(delay_s=0.01, jitter_s=0.002, loss=0.01))
    with socket.create_connection(("127.0.0.1", relay.port)) as end:
        started = time.monotonic()
        assert exchange(end, 256) == bytes(range(256))
        assert time.monotonic() - started >= 0.02
        assert exchange(end, 1 << 20) == bytes(range(256)) * 4096
    relay.close()


def test_a_frozen_relay_passes_nothing_and_a_cut_one_ends(echo_server: int) -> None:
    relay = Relay("127.0.0.1", echo_server, Network())
    with socket.create_connection(("127.0.0.1", relay.port)) as end:
        exchange(end, 256)
        relay.freeze()
        end.sendall(b"x")
        end.settimeout(0.2)
        with pytest.raises(TimeoutError):
            end.recv(1)
        relay.cut()
        with contextlib.suppress(ConnectionError):
            assert end.recv(1) == b""
    relay.close()
    with pytest.raises(NeedError, match="This network is none"):
        Network(delay_s=-1)


def test_tls_carries_the_bytes_and_refuses_an_unknown_server(certificates: Path) -> None:
    at = certificates
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(at / "ca.pem"))
    context.load_cert_chain(at / "server.pem", at / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=echo, args=(listener, context), daemon=True).start()
    server = f"127.0.0.1:{listener.getsockname()[1]}"
    tunnel = Tunnel(server, at / "ca.pem", at / "client.pem", at / "client.key")
    with tunnel, socket.socket(socket.AF_UNIX) as end:
        end.connect(str(tunnel.path))
        assert exchange(end, 2560) == bytes(range(256)) * 10
    with pytest.raises(DeviceError, match="No TLS connection"):
        Tunnel(server, at / "client.pem", None, None).__enter__()
    with pytest.raises(NeedError, match="cannot be used"):
        Tunnel(server, at / "none.pem", None, None)
    listener.close()


def test_the_check_names_the_device_and_fails_without_a_server(loopback: Any) -> None:
    env = environment(os.environ, f"127.0.0.1:{loopback.port}", libraries=loopback.library.parent)
    command = [sys.executable, "-m", "umsh.remote.check"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "loopback: 1.1 GB" in done.stdout
    assert "round trip" in done.stdout
    loopback.process.kill()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cuInit returned 100" in done.stderr


def test_umsh_run_gives_an_unmodified_program_the_remote_device(loopback: Any, tmp_path: Path) -> None:
    from umsh.remote import run

    program = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    env = environment(os.environ, f"127.0.0.1:{loopback.port}", libraries=loopback.library.parent)
    assert run.run_child([sys.executable, "-c", f"exec({program!r})"], env) == 0
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("0", "")
