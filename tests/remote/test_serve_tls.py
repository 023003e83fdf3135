"""umsh-serve over mutual TLS: a program from end to end, who is refused, and clients that stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from umsh.remote import hello, service
from umsh.remote.serve import SOFTWARE
from umsh.remote.sessions import BIN

pytestmark = pytest.mark.skipif(not BIN.exists() or not SOFTWARE.exists(), reason="umsh-session is not built")


@pytest.fixture
def serving(start: Callable[..., Any], certificates: Path) -> Any:
    at = certificates
    return start("--tls-cert", str(at / "server.pem"), "--tls-key", str(at / "server.key"),
                 "--tls-ca", str(at / "ca.pem"))  # fmt: skip


def client_options(at: Path) -> list[str]:
    return ["--tls-ca", str(at / "ca.pem"), "--tls-cert", str(at / "client.pem"),
            "--tls-key", str(at / "client.key")]  # fmt: skip


def test_a_program_runs_over_tls(serving: Any, certificates: Path) -> None:
    program = serving.program(4096, 0, *client_options(certificates))
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (0, "0\n"), err


def test_a_client_without_a_certificate_gets_no_session(serving: Any, certificates: Path) -> None:
    program = serving.program(4096, 0, "--tls-ca", str(certificates / "ca.pem"))
    assert program.communicate(timeout=60)[0] != "0\n"
    assert program.returncode != 0


def test_silent_handshakes_are_bounded_and_end(serving: Any, certificates: Path) -> None:
    """As many as may be in the hello at once: the next gets its turn when they are given up."""
    silent = [serving.raw() for _ in range(service.GREETINGS_MAX)]
    program = serving.program(4096, 0, *client_options(certificates))
    for end in silent:
        end.settimeout(4 * hello.TIMEOUT_S)
        assert end.recv(1) == b""
        end.close()
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (0, "0\n"), err
