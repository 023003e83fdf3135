"""A child process that does risky steps under a deadline; one that hangs or dies is replaced."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Any

import msgspec

from umsh import errors
from umsh.errors import UmshError

START_S = 120.0  # first answer: imports and, on a cold machine, the driver's own start
REPLY_BYTES_MAX = 256 << 20


class ChildError(UmshError):
    """The child process ended or was killed before it answered; the text says how."""


def module_arguments(module: str) -> tuple[str, ...]:
    """Arguments that run `module` as `python -m` does, but found where this process finds umsh.

    `python -m` looks in the current folder first, where a checkout's bare sources hide the installed ones.
    """
    code = f"import sys, runpy; sys.path[:] = {sys.path!r}; runpy.run_module({module!r}, run_name='__main__')"
    return "-c", code


class Child:
    """Asks the module umsh.probe.worker, one request at a time; spawned, never forked."""

    def __init__(self, arguments: tuple[str, ...] = ()) -> None:
        self._arguments = arguments or module_arguments("umsh.probe.worker")
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__

    @property
    def running(self) -> bool:
        """Whether a child process is there to be asked; without one, the next ask starts it."""
        return self._process is not None and self._process.poll() is None

    def ask(self, request: dict[str, Any], deadline_s: float) -> Any:
        """The answer to a request.

        Raises ChildError when the process ends or is killed at the deadline; the next ask starts another.
        Raises the typed error that the step raised in the child.
        """
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            self._end("it ended")
        return _answer(self._line(process, deadline_s))

    def close(self) -> None:
        """End the child process, by its id, and wait for it. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._errors.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if not self.running:
            self.close()  # one that died after its last answer
            self._errors.seek(0)
            self._errors.truncate()
            # A session of its own: Ctrl-C reaches the parent, which then ends the child.
            self._process = subprocess.Popen(
                [sys.executable, *self._arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
            )  # fmt: skip
        assert self._process is not None
        return self._process

    def _line(self, process: subprocess.Popen[bytes], deadline_s: float) -> bytes:
        assert process.stdout is not None
        end, line = time.monotonic() + deadline_s, bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, end - time.monotonic())):
                    self._end(f"it did not end within {deadline_s:g} s")
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part or len(line) > REPLY_BYTES_MAX:
                    self._end("")
                line += part
        return bytes(line)

    def _end(self, how: str) -> None:
        process = self._process
        assert process is not None
        if not how:
            try:
                code = process.wait(timeout=5)
                how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
            except subprocess.TimeoutExpired:
                how = "it closed its output"
        self.close()
        raise ChildError(how + self._last_words())

    def _last_words(self) -> str:
        """The last line that the child, or a driver in it, wrote to stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""


def _answer(line: bytes) -> Any:
    reply = msgspec.json.decode(line)
    if "error" not in reply:
        return reply["answer"]
    kind = getattr(errors, reply["error"], None)
    if isinstance(kind, type) and issubclass(kind, UmshError):
        raise kind(*reply["parts"])
    raise RuntimeError(f"a probe step failed:\n{reply['parts'][0]}")
