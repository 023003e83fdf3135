"""What the programs that call everything share: the library, and what succeeded and what did not."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

cu = ctypes.CDLL(os.environ.get("UMSH_TEST_LIBRARY", "libcuda.so.1"))
failed: list[str] = []
succeeded: set[str] = set()


def do(name: str, *arguments: Any) -> int:
    result = int(getattr(cu, name)(*arguments))
    if result:
        failed.append(f"{name}: {result}")
    else:
        succeeded.add(name)
    return result


def make(name: str, *arguments: Any, kind: Any = c_void_p) -> Any:
    """Calls with the result in front, as the API's creating calls have it."""
    out = kind()
    do(name, byref(out), *arguments)
    return out


def group(function: Callable[[], None]) -> None:
    try:
        function()
    except Exception as error:  # one group must not keep the others from running
        failed.append(f"{function.__name__}: {error!r}")


def current() -> c_void_p:
    context = c_void_p()
    do("cuCtxGetCurrent", byref(context))
    return context
