"""Record files: written whole or not at all, and read with typed errors."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from umsh.errors import RecordError


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` by a temporary file, fsync and rename; an old file stays intact on failure.

    Raises RecordError (folder missing and not creatable, read-only, disk full).
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = ""
    except OSError as error:
        raise RecordError(
            f"{path} could not be written: {error.strerror or error}.",
            "The file that was there, if any, is unchanged.",
            "Free space or choose a writable folder (--output DIR).",
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def read_bytes(path: Path, what: str) -> bytes:
    """The bytes of a record file; RecordError when it cannot be read or is empty."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, what, error.strerror or str(error)) from error
    if not data:
        raise unreadable(path, what, "it is empty")
    return data


def check_format(path: Path, what: str, found: object, newest: int) -> None:
    """RecordError unless the file's format number is one this release reads."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise unreadable(path, what, f"its format number is {found!r}")
    if found > newest:
        raise RecordError(
            f"The {what} {path} has format {found}; this release reads up to {newest}.",
            "It was not used.",
            "Upgrade umsh, or run `umsh-probe` again.",
        )


def unreadable(path: Path, what: str, reason: str) -> RecordError:
    """The one error for a record file that is missing, truncated or not what it claims."""
    return RecordError(
        f"The {what} {path} cannot be used: {reason}.", "It was not used.", "Run `umsh-probe` again."
    )
