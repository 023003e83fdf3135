"""Generated and table-driven calls from a program's side: graphs, virtual memory, refusals, NVML."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from umsh.remote.codegen.model import prototypes
from umsh.remote.codegen.rules import Rules

NATIVE = Path(__file__).parents[2] / "umsh" / "remote" / "native"

NODES = """
class KernelNode(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
                ("parameters", c_void_p), ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p)]

def kernel_node(kernel, *parameters):
    buffers = [ctypes.create_string_buffer(p, len(p)) for p in parameters]
    table = (c_void_p * len(buffers))(*(ctypes.addressof(b) for b in buffers))
    node = KernelNode(kernel, (c_uint * 3)(1, 1, 1), (c_uint * 3)(1, 1, 1), 0, ctypes.addressof(table))
    node.keep = (buffers, table)
    return node

graph, empty, node, run = c_void_p(), c_void_p(), c_void_p(), c_void_p()
"""


def test_a_graph_made_of_nodes_runs_its_kernel_with_its_parameters(software: Any) -> None:
    software.check(
        NODES
        + """
start()
kernel, first, second = function("dump_8_8"), alloc(64), alloc(64)
ok(cu.cuGraphCreate(byref(graph), 0))
ok(cu.cuGraphAddEmptyNode(byref(empty), graph, None, c_size_t(0)))
after = (c_void_p * 1)(empty)
made = kernel_node(kernel, word(first), word(77))
ok(cu.cuGraphAddKernelNode_v2(byref(node), graph, after, c_size_t(1), byref(made)))
ok(cu.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0)))
ok(cu.cuGraphLaunch(run, None))
ok(cu.cuCtxSynchronize())
assert download(first + 8, 8) == word(77)
"""
    )


def test_a_host_node_runs_its_function_here_each_time(software: Any) -> None:
    software.check(
        NODES
        + """
import threading
start()
seen = []
@ctypes.CFUNCTYPE(None, c_void_p)
def note(data):
    seen.append((data, threading.get_ident()))
class HostNode(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("data", c_void_p)]
host = HostNode(ctypes.cast(note, c_void_p), 42)
ok(cu.cuGraphCreate(byref(graph), 0))
ok(cu.cuGraphAddHostNode(byref(node), graph, None, c_size_t(0), byref(host)))
shown = HostNode()
ok(cu.cuGraphHostNodeGetParams(node, byref(shown)))
assert shown.data == 42
ok(cu.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0)))
for _ in range(3):
    ok(cu.cuGraphLaunch(run, None))
    ok(cu.cuCtxSynchronize())
assert [data for data, _ in seen] == [42] * 3
"""
    )


def test_graph_queries_name_the_handles_that_the_program_made(software: Any) -> None:
    software.check(
        NODES
        + """
start()
ok(cu.cuGraphCreate(byref(graph), 0))
ok(cu.cuGraphAddEmptyNode(byref(empty), graph, None, c_size_t(0)))
ok(cu.cuGraphAddEmptyNode(byref(node), graph, (c_void_p * 1)(empty), c_size_t(1)))
count = c_size_t(0)
ok(cu.cuGraphGetNodes(graph, None, byref(count)))
assert count.value == 2
nodes = (c_void_p * 2)()
ok(cu.cuGraphGetNodes(graph, nodes, byref(count)))
assert set(nodes) == {empty.value, node.value}
kind = c_int(-1)
ok(cu.cuGraphNodeGetType(node, byref(kind)))
assert kind.value == 5
stale = c_void_p(graph.value)
ok(cu.cuGraphDestroy(graph))
cu.cuCtxSynchronize()
assert cu.cuGraphGetNodes(stale, None, byref(count)) == 400
"""
    )


def test_a_memset_node_of_memory_that_is_not_the_sessions_is_refused(software: Any) -> None:
    software.check(
        NODES
        + """
class Memset(ctypes.Structure):
    _fields_ = [("dst", c_uint64), ("pitch", c_size_t), ("value", c_uint), ("element", c_uint),
                ("width", c_size_t), ("height", c_size_t)]
start()
ok(cu.cuGraphCreate(byref(graph), 0))
ok(cu.cuCtxSynchronize())
bad = Memset(0x1234000, 0, 1, 1, 8, 1)
ok(cu.cuGraphAddMemsetNode(byref(node), graph, None, c_size_t(0), byref(bad), None))
assert cu.cuMemAlloc_v2(byref(c_uint64()), c_size_t(8)) == 1  # the error of a call that was not waited for
count = c_size_t()
ok(cu.cuGraphGetNodes(graph, None, byref(count)))
assert count.value == 0
"""
    )


def test_the_program_manages_virtual_memory_itself(software: Any) -> None:
    software.check("""
class Properties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int),
                ("meta", c_void_p), ("flags", c_uint64)]
class Access(ctypes.Structure):
    _fields_ = [("location", c_int), ("device", c_int), ("flags", c_int)]
start()
wanted, access, size = Properties(1, 0, 1, 0), Access(1, 0, 3), c_size_t()
ok(cu.cuMemGetAllocationGranularity(byref(size), byref(wanted), 0))
part = size.value
at = c_uint64()
ok(cu.cuMemAddressReserve(byref(at), c_size_t(4 * part), c_size_t(0), c_uint64(0), c_uint64(0)))
handles = []
for i in range(2):
    handle = c_uint64()
    ok(cu.cuMemCreate(byref(handle), c_size_t(part), byref(wanted), c_uint64(0)))
    ok(cu.cuMemMap(c_uint64(at.value + i * part), c_size_t(part), c_size_t(0), handle, c_uint64(0)))
    handles.append(handle)
ok(cu.cuMemSetAccess(at, c_size_t(2 * part), byref(access), c_size_t(1)))
upload(at.value + part - 4, b"overlaps")
assert download(at.value + part - 4, 8) == b"overlaps"
to = ctypes.create_string_buffer(8)
assert cu.cuMemcpyDtoH_v2(to, c_uint64(at.value + 2 * part - 4), c_size_t(8)) == 1
elsewhere = alloc(4 << 20)
assert cu.cuMemMap(c_uint64(elsewhere), c_size_t(part), c_size_t(0), handles[0], c_uint64(0)) == 1
assert cu.cuMemUnmap(c_uint64(elsewhere), c_size_t(part)) == 1
third = c_uint64(at.value + 2 * part)
assert cu.cuMemMap(third, c_size_t(part), c_size_t(0), c_uint64(999), c_uint64(0)) == 1
assert cu.cuMemAddressFree(at, c_size_t(4 * part)) == 1
ok(cu.cuMemUnmap(at, c_size_t(2 * part)))
for handle in handles:
    ok(cu.cuMemRelease(handle))
    assert cu.cuMemRelease(handle) == 1
ok(cu.cuMemAddressFree(at, c_size_t(4 * part)))
assert cu.cuMemcpyDtoH_v2(to, at, c_size_t(8)) == 1
""")


def test_an_unsupported_call_changes_nothing_and_names_itself_once(software: Any) -> None:
    done = software.run("""
start()
handle = (ctypes.c_char * 64)()
for _ in range(3):
    assert cu.cuIpcGetMemHandle(handle, c_uint64(alloc(100))) == 801
assert bytes(handle) == bytes(64)
""")
    assert done.code == 0, done.err
    assert len(re.findall("cuIpcGetMemHandle", done.err)) == 1


def test_every_public_symbol_is_exported(client_library: Path) -> None:
    made = prototypes()
    library = ctypes.CDLL(str(client_library))
    assert [s["symbol"] for s in made["symbols"] if not hasattr(library, s["symbol"])] == []
    nvml = ctypes.CDLL(str(client_library.with_name("libnvidia-ml.so.1")))
    table = made["libraries"]["nvml"]
    assert [n for n in [*table["functions"], *table["older"]] if not hasattr(nvml, n)] == []


def test_the_client_exports_only_its_interface(client_library: Path) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "-C", client_library], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    names = [line.split(maxsplit=2)[2] for line in listed]
    assert [n for n in names if not n.startswith(("cu", "umsh::"))] == []


def test_what_is_generated_follows_from_the_tables() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "umsh.remote.codegen", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_prototypes_hold_names_and_types_only() -> None:
    made = prototypes()
    text = json.dumps(made)
    assert "/tmp" not in text
    assert "(unnamed at" not in text
    assert {len(made["libraries"][name]["functions"]) for name in ("driver", "nvml", "cudart")} == {
        449,
        375,
        310,
    }


def test_a_rule_names_only_calls_that_exist() -> None:
    made = prototypes()
    for library in ("driver", "nvml"):
        table = made["libraries"][library]
        known = {*table["functions"], *table["older"]}
        rules = Rules(library, made["structs"])
        assert set(rules.table.get("call", {})) <= known
        assert set(rules.table.get("struct", {})) <= set(made["structs"])
        for section in ("travels", "unsupported", "hand"):
            for patterns in rules.table.get(section, {}).values():
                unused = [p for p in patterns if not any(re.fullmatch(p, name) for name in known)]
                assert unused == [], section
