"""Profile and choice files on bad ground: full disk, read-only folder, interrupted writes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from umsh import records
from umsh.errors import RecordError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "choice.toml"
    records.write_atomic(path, b"the old file")
    return path


def left_over(path: Path) -> list[str]:
    return [found.name for found in path.parent.iterdir() if found != path]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_failed_write_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(RecordError, match=os.strerror(code)):
        records.write_atomic(path, b"a new file")
    assert path.read_bytes() == b"the old file"
    assert not left_over(path)


def test_a_disk_that_is_full_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdopen

    def full(number: int, mode: str) -> Any:
        os.close(number)
        return real(os.open("/dev/full", os.O_WRONLY), mode)

    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(RecordError, match="No space left"):
        records.write_atomic(path, b"x" * 100_000)
    assert path.read_bytes() == b"the old file"
    assert not left_over(path)


def test_a_folder_that_may_not_be_written_is_one_error(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(RecordError, match="could not be written"):
            records.write_atomic(path, b"new")
    finally:
        path.parent.chmod(stat.S_IRWXU)
    assert path.read_bytes() == b"the old file"


def test_a_folder_that_cannot_be_made_is_one_error(path: Path) -> None:
    with pytest.raises(RecordError, match="could not be written"):
        records.write_atomic(path / "below a file" / "choice.toml", b"new")


def test_an_interrupt_leaves_the_old_file_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        records.write_atomic(path, b"new")
    assert path.read_bytes() == b"the old file"
    assert not left_over(path)


def test_a_folder_where_a_file_should_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=str(tmp_path)):
        records.read_bytes(tmp_path, "choice")
