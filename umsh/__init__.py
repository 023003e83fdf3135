"""Shared memory between CPU and GPU: correct first, then fast, and it says why."""

from umsh import errors
from umsh.api import MemoryInfo, attach, bind, explain, get_include, memory_info, unbind
from umsh.control import Flag, Lock, Word, acquire, lock, release, unlock, wait
from umsh.control import set as set
from umsh.region import Handle, Region
from umsh.transfer import read, write

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
    "lock",
    "memory_info",
    "read",
    "release",
    "unbind",
    "unlock",
    "wait",
    "write",
]
