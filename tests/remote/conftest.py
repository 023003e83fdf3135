"""The client library under test, the loopback server, and programs that run against them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from umsh.remote import hello
from umsh.remote.hello import Kind
from umsh.remote.serve import ask_status

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "umsh" / "remote" / "native"
PROGRAMS = HERE / "programs"
CLIENT_HELLO_NBYTES = 168
FLAGS = ("-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror")


def library_folder() -> Path:
    """Where libcuda.so.1 of the client lies; UMSH_REMOTE_LIB names another build, such as a sanitizer's."""
    named = os.environ.get("UMSH_REMOTE_LIB")
    return Path(named) if named else NATIVE.parent / "lib"


@pytest.fixture(scope="session")
def client_library() -> Path:
    path = library_folder() / "libcuda.so.1"
    if not path.exists():
        pytest.skip(f"the remote client is not built: no {path.name} in {path.parent.name}")
    return path


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds a program of tests/remote/programs with the sources that it needs; once a session."""
    made: dict[str, Path] = {}

    def build(name: str, *sources: str, flags: tuple[str, ...] = ()) -> Path:
        if name not in made:
            out = tmp_path_factory.mktemp("programs") / name
            files = [PROGRAMS / f"{name}.cpp", *(NATIVE / source for source in sources)]
            command = ["g++", *FLAGS, *flags, "-I", NATIVE, *files, "-ldl", "-lpthread", "-o", out]
            subprocess.run([str(part) for part in command], check=True)
            made[name] = out
        return made[name]

    return build


WIRE = ("wire/launch.cpp", "wire/socket.cpp", "wire/crypto.cpp")


@dataclass
class Finished:
    code: int
    out: str
    err: str


@dataclass
class Server:
    """A server and the clients that a test runs against it."""

    process: subprocess.Popen[str] | None
    port: int
    library: Path
    environment: dict[str, str] = field(default_factory=dict)

    def replies(self) -> int:
        """How many calls of the next client that has ended waited for the server."""
        assert self.process is not None
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def run(self, script: str, timeout_s: float = 60, **environment: str) -> Finished:
        """Runs Python in a process of its own, with the client's calls as `cu` and helpers of cuda_calls."""
        env = {
            **os.environ, "PYTHONPATH": str(HERE / "programs"), "UMSH_SERVER": f"127.0.0.1:{self.port}",
            "UMSH_TEST_LIBRARY": str(self.library), **self.environment, **environment,
        }  # fmt: skip
        if runtime := os.environ.get("UMSH_REMOTE_PRELOAD"):  # a sanitizer's, for its build of the library
            env["LD_PRELOAD"] = runtime
        command = [sys.executable, "-c", "from cuda_calls import *\n" + script]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s)
        return Finished(done.returncode, done.stdout, done.stderr)

    def check(self, script: str, **environment: str) -> str:
        """The same, and the script must end well; what it printed."""
        done = self.run(script, **environment)
        assert done.code == 0, done.err
        return done.out


def say_hello(end: socket.socket) -> None:
    """The server's half of a hello without a token."""
    end.recv(CLIENT_HELLO_NBYTES, socket.MSG_WAITALL)
    end.sendall(struct.pack("<8sHHI32s208s", b"UMSHCALL", 1, 0, 0, b"", b""))
    end.sendall(struct.pack("<IIQ240s", 0, 0, 1, b""))


@pytest.fixture
def start_software(client_library: Path) -> Iterator[Callable[..., Server]]:
    """Sessions on the software device: one process for each client, as umsh-serve starts them."""
    session = client_library.parent.parent / "bin" / "umsh-session"
    backend = client_library.parent / "libumsh-software.so"
    if not session.exists() or not backend.exists():
        pytest.skip("umsh-session and the software device are not built")
    listeners: list[socket.socket] = []
    sessions: list[subprocess.Popen[str]] = []

    def serve(listener: socket.socket, options: tuple[str, ...]) -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            with end:
                say_hello(end)
                command = [session, "--fd", str(end.fileno()), "--backend", str(backend), *options]
                sessions.append(subprocess.Popen(command, pass_fds=[end.fileno()], text=True))

    def start(*options: str) -> Server:
        listeners.append(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=serve, args=(listeners[-1], options), daemon=True).start()
        return Server(None, listeners[-1].getsockname()[1], client_library)

    yield start
    for listener in listeners:
        listener.close()
    for process in sessions:
        try:
            process.wait(5)  # its client has left
        finally:
            process.kill()


@pytest.fixture
def software(start_software: Callable[..., Server]) -> Server:
    return start_software()


@pytest.fixture(params=["loopback", "software"])
def remote(request: pytest.FixtureRequest) -> Server:
    """The client against its own stub, and against the real session process on the software device."""
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def client_of(client_library: Path) -> Callable[[int], Server]:
    """Clients of a server that the test itself plays on a port."""
    return lambda port: Server(None, port, client_library)


@pytest.fixture
def start_loopback(compiled: Callable[..., Path], client_library: Path) -> Iterator[Callable[..., Server]]:
    running: list[subprocess.Popen[str]] = []

    def start(**environment: str) -> Server:
        program = compiled("loopback", *WIRE)
        process = subprocess.Popen(
            [program], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        running.append(process)
        assert process.stdout is not None
        return Server(process, int(process.stdout.readline()), client_library)

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def loopback(start_loopback: Callable[..., Server]) -> Server:
    return start_loopback()


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


@pytest.fixture
def client_hello() -> Callable[..., bytes]:
    def pack(tables: bytes, kind: int = Kind.SESSION, major: int = hello.WIRE_MAJOR) -> bytes:
        return hello.CLIENT.pack(hello.MAGIC, major, 0, kind, tables, bytes(32), os.getpid(), b"test", b"0")

    return pack


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """An authority, and a server's and a client's certificate that it signed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make certificates with")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", "names")  # fmt: skip
    return tmp_path
