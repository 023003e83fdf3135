"""Parts of the wire and of the client in C++ programs, plain and with sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = {
    "launch_codec": ("wire/launch.cpp",),
    "client_parts": ("client/image.cpp", "client/memory.cpp", "client/settings.cpp"),
}
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("program", SOURCES)
def test_every_check_holds_and_no_sanitizer_speaks(compiled: Callable[..., Path], program: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    binary = compiled(program, *SOURCES[program], flags=SANITIZE)
    done = subprocess.run([str(binary)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
