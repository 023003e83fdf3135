"""Every benchmark, found by listing this folder: a file that holds BENCHMARK is one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import umsh.microbench
from umsh.microbench.definition import Benchmark


@cache
def benchmarks() -> dict[str, Benchmark]:
    """key -> benchmark, by key."""
    found = {}
    for module in pkgutil.iter_modules(umsh.microbench.__path__):
        if not module.name.startswith("test_"):
            loaded = importlib.import_module(f"umsh.microbench.{module.name}")
            if isinstance(benchmark := getattr(loaded, "BENCHMARK", None), Benchmark):
                found[benchmark.key] = benchmark
    return dict(sorted(found.items()))
