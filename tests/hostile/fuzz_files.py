"""Coverage-guided fuzzing of the header paths: any bytes give a header or a FileError, nothing else.

pip install atheris && python tests/hostile/fuzz_files.py -max_total_time=60 -max_len=4096
"""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["umsh.files"]):
    from umsh.errors import FileError
    from umsh.files.load import open_file


def seeds(folder: Path) -> None:
    """One good file of each format, for the fuzzer to begin with."""
    text = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    (folder / "seed-safetensors").write_bytes(b"\0" + struct.pack("<Q", len(text)) + text + bytes(8))
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 7)
    head += struct.pack("<Q", 1) + b"w" + struct.pack("<IQIQ", 1, 2, 0, 0)
    (folder / "seed-gguf").write_bytes(b"\1" + head + bytes(-len(head) % 32) + bytes(8))


def one(data: bytes) -> None:
    """The first byte chooses the format, the rest is the file."""
    if not data:
        return
    TARGET.write_bytes(data[1:])
    try:
        source, header = open_file(TARGET, "gguf" if data[0] & 1 else "safetensors")
    except FileError:
        return
    source.close()
    for entry in header.entries:
        assert entry.offset >= 0
        assert entry.offset + entry.nbytes <= len(data) - 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        TARGET = Path(scratch) / "input"
        corpus = Path(scratch) / "corpus"
        corpus.mkdir()
        seeds(corpus)
        atheris.Setup([*sys.argv, str(corpus)], one)
        atheris.Fuzz()
