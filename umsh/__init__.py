"""Shared memory between CPU and GPU: correct first, then fast, and it says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umsh import errors
from umsh.api import attach, bind, explain, get_include, memory_info, unbind
from umsh.control import Flag, Lock, Word
from umsh.handle import Handle
from umsh.machine import MemoryInfo
from umsh.region import Region
from umsh.transfer import read, write
from umsh.verbs import acquire, lock, release, unlock, wait
from umsh.verbs import set as set

if TYPE_CHECKING:
    from umsh.files import load_file
    from umsh.files.torch import load_into

__version__ = "0.1.0"

# `set` is a verb too, but `from umsh import *` must not hide the builtin.
__all__ = [
    "Flag",
    "Handle",
    "Lock",
    "MemoryInfo",
    "Region",
    "Word",
    "acquire",
    "attach",
    "bind",
    "errors",
    "explain",
    "get_include",
    "load_file",
    "load_into",
    "lock",
    "memory_info",
    "read",
    "release",
    "unbind",
    "unlock",
    "wait",
    "write",
]


def __getattr__(name: str) -> Any:
    """load_file and load_into, imported at their first use: they need more than regions do."""
    from importlib import import_module

    homes = {"load_file": "umsh.files", "load_into": "umsh.files.torch"}
    if name not in homes:
        raise AttributeError(f"module 'umsh' has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
