"""File reads: any offset, length and address, on a disk and in memory; files that are not what they were."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from umsh.errors import FileError
from umsh.native import FileReport, file_resident, lib, map_pages, read_file
from umsh.native.pages import Mapping

SIZES = (0, 1, 511, 4095, 4096, 4097, 3 * 4096 + 123)
MARGIN = 8192
LARGE = (20 << 20) + 1234
GUARD = 0xEE


@dataclass(frozen=True)
class Place:
    """A folder on one kind of file system, and room to read to."""

    folder: Path
    in_memory: bool
    memory: Mapping

    def file(self, content: bytes) -> Path:
        path = self.folder / "data"
        path.write_bytes(content)
        with open(path, "rb") as opened:
            os.fsync(opened.fileno())
        return path

    def read(self, path: Path, offset: int, nbytes: int, shift: int) -> tuple[FileReport, bytes]:
        """Read to a guarded place; the guards must stay."""
        from umsh.native import ffi

        whole = ffi.buffer(ffi.cast("char *", self.memory.address), nbytes + 2 * MARGIN)
        whole[0 : len(whole)] = bytes([GUARD]) * len(whole)
        report = read_file(path, offset, self.memory.address + MARGIN + shift, nbytes)
        start = MARGIN + shift
        assert set(whole[0:start]) == {GUARD}
        assert set(whole[start + nbytes : len(whole)]) == {GUARD}
        return report, whole[start : start + nbytes]


def in_memory(folder: Path) -> bool:
    """Whether the mount that holds a folder is tmpfs."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    holding = [(len(m[1]), m[2]) for m in mounts if folder.resolve().is_relative_to(m[1])]
    return max(holding, default=(0, "the root, which a chroot does not list"))[1] in ("tmpfs", "ramfs")


def disk_folder() -> Path | None:
    for candidate in (Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()):
        if candidate.is_dir() and not in_memory(candidate) and os.access(candidate, os.W_OK):
            return candidate
    return None


@pytest.fixture(scope="module", params=["disk", "tmpfs"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    parent = disk_folder() if request.param == "disk" else Path("/dev/shm")
    if parent is None:
        pytest.skip("every folder at hand is on tmpfs")
    if not parent.is_dir() or in_memory(parent) != (request.param == "tmpfs"):
        pytest.skip(f"{parent} is not on {request.param}")
    folder = Path(tempfile.mkdtemp(prefix="umsh-", dir=parent))
    memory = map_pages(LARGE + 4 * MARGIN, "thp")
    yield Place(folder, request.param == "tmpfs", memory)
    memory.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0, 1, 16, 512])
def test_every_offset_and_length(place: Place, size: int, shift: int) -> None:
    """https://github.com/ggml-org/llama.cpp/issues/18766"""
    content = os.urandom(size)
    path = place.file(content)
    edges = sorted({0, 1, 123, 511, 512, 513, 4095, 4096, size - 1, size} & set(range(size + 1)))
    for offset in edges:
        for nbytes in {0, 1, 512, 1000, 4096, size - offset} & set(range(size - offset + 1)):
            _, got = place.read(path, offset, nbytes, shift)
            assert got == content[offset : offset + nbytes], (offset, nbytes)


@pytest.mark.parametrize(
    ("offset", "cut", "shift"), [(0, 0, 0), (123, 0, 0), (4096, 5, 16), (7, 9, 1), (1, 0, 1)]
)
def test_large_reads_in_several_pieces(place: Place, offset: int, cut: int, shift: int) -> None:
    """https://github.com/ggml-org/llama.cpp/issues/18766"""
    content = os.urandom(LARGE)
    nbytes = LARGE - offset - cut
    report, got = place.read(place.file(content), offset, nbytes, shift)
    assert got == content[offset : offset + nbytes]
    assert report.nbytes_direct + report.nbytes_buffered == nbytes
    assert report.file_bytes == LARGE


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_read_is_exact(place: Place, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 200_000), "size")
    offset = data.draw(st.integers(0, size), "offset")
    nbytes = data.draw(st.integers(0, size - offset), "nbytes")
    shift = data.draw(st.integers(0, 4096), "shift")
    content = os.urandom(size)
    _, got = place.read(place.file(content), offset, nbytes, shift)
    assert got == content[offset : offset + nbytes]


def test_the_report_says_which_path_ran(place: Place) -> None:
    content = os.urandom(LARGE)
    path = place.file(content)
    report, _ = place.read(path, 0, LARGE, 0)
    if place.in_memory:
        assert (report.direct, report.fallback, report.nbytes_buffered) == (False, "EOPNOTSUPP", LARGE)
        return
    if not report.direct:
        pytest.skip(f"this file system refuses direct reads ({report.fallback})")
    assert report.fallback == ""
    assert report.alignment & (report.alignment - 1) == 0
    assert report.nbytes_direct == LARGE
    assert report.nbytes_bounced < 2 * report.alignment  # the tail only
    bounced, _ = place.read(path, 1, LARGE - 1, 0)
    assert bounced.nbytes_bounced == LARGE - 1


def test_direct_reads_leave_the_page_cache_alone(place: Place) -> None:
    path = place.file(os.urandom(LARGE))
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    before = file_resident(fd, 0, LARGE)
    report, _ = place.read(path, 123, LARGE - 456, 5)
    after = file_resident(fd, 0, LARGE)
    os.close(fd)
    if place.in_memory:
        assert before == after >= LARGE
    elif report.direct:
        assert after == before
    else:
        pytest.skip(f"this file system refuses direct reads ({report.fallback})")


def test_a_file_that_ends_early_is_an_error_and_nothing_is_written(place: Place) -> None:
    path = place.file(b"x" * 4219)
    for offset, nbytes in ((0, 4220), (4219, 1), (5000, 0), (1 << 62, 10)):
        with pytest.raises(FileError, match="has 4219 bytes"):
            place.read(path, offset, nbytes, 0)
    with pytest.raises(FileError, match="values of 0 or more"):
        place.read(path, -1, 1, 0)


def test_a_descriptor_is_read_without_moving_its_position(place: Place) -> None:
    path = place.file(bytes(range(256)) * 40)
    with open(path, "rb", buffering=0) as opened:
        opened.seek(17)
        report = read_file(opened.fileno(), 256, place.memory.address, 256)
        assert opened.tell() == 17
    assert report.file_bytes == 10240
    assert lib.umsh_load_acquire(place.memory.address) == 0x03020100


def test_what_is_no_readable_file_is_an_error(place: Place, tmp_path: Path) -> None:
    address = place.memory.address
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing", 0, address, 1)
    folder = os.open(tmp_path, os.O_RDONLY)
    reader, writer = os.pipe()
    with pytest.raises(FileError, match="directory"):
        read_file(folder, 0, address, 1)
    with pytest.raises(FileError, match="Invalid argument"):
        read_file(reader, 0, address, 1)
    for fd in (folder, reader, writer):
        os.close(fd)
    with pytest.raises(FileError, match="Bad file descriptor"):
        read_file(folder, 0, address, 1)


def test_a_bad_destination_is_an_error_not_a_crash(place: Place) -> None:
    """Nothing is mapped at this address: the kernel refuses each of its pages."""
    path = place.file(os.urandom(1 << 16))
    with pytest.raises(FileError, match="Bad address"):
        read_file(path, 0, 4096, 1 << 16)


def test_no_descriptor_leaks(place: Place) -> None:
    path = place.file(os.urandom(5000))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        place.read(path, 3, 4000, 1)
    assert len(os.listdir("/proc/self/fd")) == before
