"""The journal of a probe in progress: finished steps, one a line, so that an interrupt loses nothing."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from umsh.errors import RecordError, UmshError
from umsh.records import write_atomic

POLL_S = 0.2


class Journal:
    """Finished steps of one plan, in a file of its own.

    heading: what must be equal for steps to count: purpose, machine, versions, seed, effort.
    """

    def __init__(self, folder: Path, heading: dict[str, Any]) -> None:
        head = msgspec.json.encode(heading, order="deterministic")
        path = folder / f"journal-{hashlib.sha256(head).hexdigest()[:12]}.jsonl"
        self.path = path
        self.done: dict[str, Any] = {}
        lines = _lines(path)
        keep = bool(lines) and lines[0] == head
        good = head + b"\n"
        for line in lines[1:] if keep else ():
            try:
                entry = msgspec.json.decode(line)
            except msgspec.DecodeError:  # the line that an interrupt or a full disk cut short
                break
            self.done[entry["key"]] = entry["records"]
            good += line + b"\n"
        write_atomic(path, good)
        try:
            self._file: IO[bytes] = path.open("ab", buffering=0)  # closing must have nothing left to write
        except OSError as error:
            raise _unwritable(path, error) from error

    def add(self, key: str, records: Any) -> None:
        """Write down one finished step. RecordError when the disk takes no more."""
        self.done[key] = records
        try:
            line = memoryview(msgspec.json.encode({"key": key, "records": records}) + b"\n")
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self, finished: bool) -> None:
        """Close it; a finished probe's journal is removed, because the profile holds everything."""
        self._file.close()
        if finished:
            self.path.unlink(missing_ok=True)


@contextmanager
def exclusive(wait_s: float) -> Iterator[None]:
    """Be the only probe of this user on this machine: two at once would measure each other.

    Waits up to wait_s for another one, then raises ProbeRunningError.
    """
    path = Path(tempfile.gettempdir()) / f"umsh-probe-{os.getuid()}.lock"
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from error
    with os.fdopen(number, "r+") as file:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise ProbeRunningError(file.read().strip() or "unknown") from None
                time.sleep(min(POLL_S, max(0.01, end - time.monotonic())))
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


class ProbeRunningError(UmshError):
    """Another probe of this user is at work."""

    def __init__(self, pid: str) -> None:
        super().__init__(
            f"Another umsh-probe (process {pid}) is measuring.",
            "Two at once would measure each other, so this one did not start.",
            "Let it end (--wait SECONDS waits for it), then start again.",
        )


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"{path} could not be used: {error.strerror or error}.",
        "Nothing was measured further; steps already written down are kept.",
        "Free space or choose a writable folder (--output DIR).",
    )
