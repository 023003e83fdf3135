"""Atomic operations on addresses, and the type stub against the compiled module."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import umsh.native
from umsh.native import ffi, lib

SUFFIXES = {"": 32, "64": 64}


@pytest.fixture
def word() -> Iterator[int]:
    memory = ffi.new("uint64_t[16]")
    yield int(ffi.cast("uintptr_t", memory))
    del memory


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_each_operation_returns_what_was_there(suffix: str, word: int) -> None:
    bits = SUFFIXES[suffix]
    top = 2**bits - 1
    load, store, exchange, compare_exchange, add = (
        getattr(lib, f"umsh_{name}{suffix}")
        for name in ("load_acquire", "store_release", "exchange", "compare_exchange", "fetch_add")
    )
    store(word, top)
    assert load(word) == top
    assert exchange(word, 5) == top
    assert compare_exchange(word, 6, 9) == 5
    assert load(word) == 5
    assert compare_exchange(word, 5, 9) == 5
    assert add(word, top) == 9
    assert load(word) == 8
    lib.umsh_fence()


def test_a_32_bit_store_leaves_its_neighbour(word: int) -> None:
    lib.umsh_store_release64(word, 0xAAAAAAAA_BBBBBBBB)
    lib.umsh_store_release(word, 0)
    assert lib.umsh_load_acquire64(word) == 0xAAAAAAAA_00000000


def test_values_that_do_not_fit_are_refused(word: int) -> None:
    with pytest.raises(OverflowError):
        lib.umsh_store_release(word, 2**32)
    with pytest.raises(OverflowError):
        lib.umsh_store_release(word, -1)


def test_no_addition_is_lost_between_threads(word: int) -> None:
    lib.umsh_store_release64(word, 0)

    def add() -> None:
        for _ in range(5000):
            lib.umsh_fetch_add64(word, 3)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lib.umsh_load_acquire64(word) == 4 * 5000 * 3


def test_the_stub_names_what_the_module_has() -> None:
    """Every function and constant, with as many arguments."""
    stub = Path(umsh.native.__file__).with_name("_native.pyi").read_text(encoding="utf-8")
    (body,) = (node.body for node in ast.parse(stub).body if isinstance(node, ast.ClassDef))
    functions = {f.name: max(len(f.args.posonlyargs) - 1, 0) for f in body if isinstance(f, ast.FunctionDef)}
    constants = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    compiled = {name: getattr(lib, name) for name in dir(lib)}
    assert functions.keys() | constants == compiled.keys()
    for name, count in functions.items():
        assert len(ffi.typeof(compiled[name]).args) == count, name
