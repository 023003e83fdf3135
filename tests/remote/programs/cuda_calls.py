"""The driver API by ctypes for scripts: `cu.name(...)` gives the result, `ok(...)` demands success."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p  # noqa: F401

cu = ctypes.CDLL(os.environ["UMSH_TEST_LIBRARY"])


def ok(result: int) -> None:
    assert result == 0, f"result {result}"


def start(device: int = 0) -> None:
    """Initialises and makes the device's primary context current."""
    ok(cu.cuInit(0))
    context = c_void_p()
    ok(cu.cuDevicePrimaryCtxRetain(byref(context), device))
    ok(cu.cuCtxSetCurrent(context))


def alloc(nbytes: int) -> int:
    address = c_uint64()
    ok(cu.cuMemAlloc_v2(byref(address), c_size_t(nbytes)))
    return address.value


def pinned(nbytes: int) -> ctypes.Array[ctypes.c_char]:
    address = c_void_p()
    ok(cu.cuMemHostAlloc(byref(address), c_size_t(nbytes), 0))
    assert address.value
    return (ctypes.c_char * nbytes).from_address(address.value)


def stream() -> c_void_p:
    made = c_void_p()
    ok(cu.cuStreamCreate(byref(made), 0))
    return made


def upload(address: int, data: bytes) -> None:
    ok(cu.cuMemcpyHtoD_v2(c_uint64(address), data, c_size_t(len(data))))


def download(address: int, nbytes: int) -> bytes:
    to = ctypes.create_string_buffer(nbytes)
    ok(cu.cuMemcpyDtoH_v2(to, c_uint64(address), c_size_t(nbytes)))
    return to.raw


def module_text(*names: str) -> bytes:
    """A module of the software device; a name tells behaviour and parameter sizes: dump_8_2."""
    lines = ["umsh-software-module 1"]
    for name in names:
        behaviour, *sizes = name.split("_")
        lines.append(f"kernel {name} {behaviour} {','.join(sizes)}")
    return "\n".join([*lines, ""]).encode()


MODULE = module_text("none", "dump_8", "dump_8_8")


def function(name: str) -> c_void_p:
    module, found = c_void_p(), c_void_p()
    ok(cu.cuModuleLoadData(byref(module), module_text(name)))
    ok(cu.cuModuleGetFunction(byref(found), module, name.encode()))
    return found


def launch(kernel: c_void_p, parameters: list[bytes], on: c_void_p | None = None) -> int:
    """Launches with one block of one thread; each parameter is its bytes."""
    buffers = [ctypes.create_string_buffer(p, len(p)) for p in parameters]
    table = (c_void_p * (len(buffers) or 1))(*(ctypes.addressof(b) for b in buffers))
    return int(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, table, None))


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")
