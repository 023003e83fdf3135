"""umsh-serve: who gets a session, who is refused and how, and what is left when a client is gone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from umsh.errors import DeviceError, NeedError
from umsh.remote import serve
from umsh.remote.serve import SOFTWARE, ask_status, token_from
from umsh.remote.sessions import BIN

pytestmark = pytest.mark.skipif(not BIN.exists() or not SOFTWARE.exists(), reason="umsh-session is not built")


def test_a_program_runs_and_the_status_shows_it(start: Callable[..., Any]) -> None:
    serving = start()
    program = serving.program(1 << 20, 3)
    status = serving.until(lambda s: any(row["device_nbytes"] >= 1 << 20 for row in s["sessions"]))
    (row,) = status["sessions"]
    assert row["calls"] > 0
    assert row["program"].startswith("python")
    out, err = program.communicate(timeout=30)
    assert (program.returncode, out) == (0, "0\n"), err
    serving.until(lambda s: s["sessions"] == [])


def test_status_prints_a_table_and_json(start: Callable[..., Any]) -> None:
    serving = start()
    command = [sys.executable, "-m", "umsh.remote.serve", "--status", "--server", serving.address]
    table = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "0 of 64 sessions" in " ".join(table.stdout.split())
    data = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(data.stdout)["devices"] == ["umsh software device"]


def test_a_token_is_needed_proved_and_never_sent(start: Callable[..., Any], tmp_path: Path) -> None:
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


def test_both_ends_tell_the_same_version() -> None:
    """The client library is native and does not ask Python; its text is of use only in messages."""
    source = Path(serve.__file__).parent / "native" / "client" / "hello.cpp"
    told = re.search(r'#define UMSH_VERSION "([^"]+)"', source.read_text())
    assert told
    assert told[1] == version("umsh")
