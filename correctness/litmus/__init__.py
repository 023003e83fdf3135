"""The litmus tests, found by listing this folder: one file, one test."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from umsh.correctness.language import Litmus


@lru_cache(maxsize=1)
def tests() -> Mapping[str, Litmus]:
    """Every test by name; the name is the file's, the digest is of the file's text."""
    found = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        test: Litmus = importlib.import_module(f"{__name__}.{module.name}").TEST
        text = (Path(__path__[0]) / f"{module.name}.py").read_bytes()
        found[module.name] = replace(test, name=module.name, digest=hashlib.sha256(text).hexdigest()[:16])
    return found
