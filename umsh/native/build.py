"""The native module's build: every C file of this folder, declared by the marked parts of its headers."""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

# setuptools wants paths relative to the root of the checkout, from where it runs this file.
HERE = Path("umsh/native")
DEVICE = Path("umsh/device")
SECTION = re.compile(r"/\* cdef begin \*/\n(.*?)/\* cdef end \*/", re.DOTALL)
CONSTANT = re.compile(r"^#define (\w+) .*$", re.MULTILINE)


def declarations(header: Path) -> str:
    """What a header declares for Python, "" without a marked section; the compiler fills in constants."""
    return CONSTANT.sub(r"#define \1 ...", "".join(SECTION.findall(header.read_text(encoding="utf-8"))))


def make() -> FFI:
    """A new part is a header with a marked section and its C file: nothing here names them."""
    builder = FFI()
    headers = [header for header in sorted(HERE.glob("*.h")) if declarations(header)]
    sources = [source for source in sorted(HERE.glob("*.c")) if source.stem != "_native"]
    for header in headers:
        builder.cdef(declarations(header))
    builder.set_source(
        "umsh.native._native",
        "".join(f'#include "{header.name}"\n' for header in headers),
        sources=[str(source) for source in sources],
        include_dirs=[str(HERE), str(DEVICE)],
        depends=[str(path) for folder in (HERE, DEVICE) for path in sorted(folder.glob("*.h"))],
        extra_compile_args=["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Wno-unused-parameter"],
        extra_link_args=["-pthread"],
    )
    return builder


ffi = make()
