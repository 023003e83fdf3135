"""File bytes straight into memory, with what was really done."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from umsh.errors import FileError
from umsh.native._native import ffi, lib


@dataclass(frozen=True, slots=True)
class FileReport:
    """How a read was done.

    direct: no byte went through the page cache. fallback: why direct reading was given up, e.g. "EINVAL",
    or "". alignment: bytes that offset and length of a direct read are multiples of, as found.
    nbytes_bounced: the part of nbytes_direct that went through an aligned buffer, as source and destination
    were not aligned alike. file_bytes: the file's size.
    """

    direct: bool
    fallback: str
    alignment: int
    nbytes_direct: int
    nbytes_bounced: int
    nbytes_buffered: int
    file_bytes: int


def read_file(file: str | os.PathLike[str] | int, offset: int, address: int, nbytes: int) -> FileReport:
    """Read bytes [offset, offset + nbytes) of a regular file (a path or a descriptor) to `address`.

    Any offset, length and address; nothing outside [address, address + nbytes) is touched.
    Raises FileError when the file ends before (nothing was read), changed its size meanwhile or cannot be
    read (the destination's content is then undefined); OSError of open(2) for a path.
    """
    if offset < 0 or nbytes < 0:
        raise FileError(
            f"offset={offset}, nbytes={nbytes} was given.", "Nothing was read.", "Use values of 0 or more."
        )
    fd = file if isinstance(file, int) else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    report = ffi.new("umsh_file_report *")
    try:
        result = lib.umsh_file_read(fd, offset, address, nbytes, report)
    finally:
        if fd is not file:
            os.close(fd)
    _check(result, file, offset, nbytes, report.file_bytes)
    return FileReport(
        direct=bool(report.direct),
        fallback=_errno_name(report.fallback_errno) if report.fallback_errno else "",
        alignment=report.alignment,
        nbytes_direct=report.nbytes_direct,
        nbytes_bounced=report.nbytes_bounced,
        nbytes_buffered=report.nbytes_buffered,
        file_bytes=report.file_bytes,
    )


def file_resident(fd: int, offset: int, nbytes: int) -> int:
    """Bytes of a file's range that are in the page cache now, in whole pages."""
    resident: int = lib.umsh_file_resident(fd, offset, nbytes)
    if resident < 0:
        raise FileError(
            f"The kernel does not tell what of this file is cached: {os.strerror(-resident)}.",
            "Nothing was changed.",
            "Own the file or have write permission for it.",
        )
    return resident


def _errno_name(number: int) -> str:
    if number == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"  # Linux has one number for this and ENOTSUP
    return errno.errorcode.get(number, str(number))


def _check(result: int, file: object, offset: int, nbytes: int, file_bytes: int) -> None:
    if result == 0:
        return
    if result == lib.UMSH_FILE_SHORT:
        raise FileError(
            f"{file!r} has {file_bytes} bytes; {nbytes} from offset {offset} were asked for.",
            "Nothing was read.",
            "The file is truncated, or its header is wrong: fetch it again.",
        )
    if result == lib.UMSH_FILE_CHANGED:
        raise FileError(
            f"{file!r} changed its size while it was read (it had {file_bytes} bytes).",
            "The bytes read are not to be trusted.",
            "Read it again once its writer has finished.",
        )
    raise FileError(
        f"{file!r} cannot be read: {os.strerror(-result)}.",
        f"{nbytes} bytes from offset {offset} were not read.",
        "Check that it is a regular file on a healthy file system.",
    )
