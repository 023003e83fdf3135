"""Writes a round-trip test of every generated call: `python -m umsh.remote.codegen.roundtrip FOLDER`.

Each test makes random valid arguments, calls the client's function, compares what the backend's function
sees, and compares the outputs that come back with what that function wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from .client import elements
from .model import Call, Parameter
from .rules import calls, hand_written
from .tables import number, served

TESTS_PER_FILE = 100
Lines = tuple[list[str], list[str], list[str]]  # before the call, inside the backend's function, after


def length(p: Parameter) -> str:
    if p.length.startswith("*"):
        return f"uint64_t({p.length[1:]}_sent)"
    return elements(p)


def scalar(p: Parameter, i: int, call: Call) -> Lines:
    n, t = p.name, p.c_type
    used = any(n in q.length for q in call.parameters)
    if call.check and n == "attr":
        value = f"{t}(2)"
    elif used:
        value = f"{t}(3 + below(4))" if n == "tensorRank" else f"{t}(1 + below(6))"
    else:
        value = f"any<{t}>()"
    return [f"auto {n} = {value};"], [f'check(same(w[{i}], {n}), "{n}");'], []


def device(p: Parameter, i: int, _: Call) -> Lines:
    cast = f"reinterpret_cast<void*>({p.name}_at)" if p.role == "address" else f"{p.name}_at"
    return (
        [f"uint64_t {p.name}_at = address();", f"auto {p.name} = {cast};"],
        [f'check(w[{i}] == {p.name}_at, "{p.name}");'],
        [],
    )


def handle(p: Parameter, i: int, _: Call) -> Lines:
    n = p.name
    before = [f"void* {n}_real = fresh();", f"void* {n} = known(kKind{p.kind}, {n}_real);"]
    return before, [f'check(w[{i}] == bits({n}_real), "{n}");'], []


def new_handle(p: Parameter, i: int, _: Call) -> Lines:
    n = p.name
    null = f"chance(4) ? nullptr : &{n}_out" if p.role == "intern" else f"&{n}_out"
    before = [f"void* {n}_real = fresh();", f"void* {n}_out = nullptr;", f"void** {n} = {null};"]
    inside = [
        f'check((w[{i}] != 0) == ({n} != nullptr), "{n}");',
        f"if (w[{i}]) *reinterpret_cast<void**>(w[{i}]) = {n}_real;",
    ]
    return before, inside, [f'if ({n}) check(real_of(kKind{p.kind}, {n}_out) == {n}_real, "{n} back");']


def text(p: Parameter, i: int, _: Call) -> Lines:
    n = p.name
    before = [
        f"std::string {n}_text = letters(below(40));",
        f"const char* {n} = chance(8) ? nullptr : {n}_text.c_str();",
    ]
    inside = [f'check({n} ? w[{i}] && {n}_text == reinterpret_cast<const char*>(w[{i}]) : !w[{i}], "{n}");']
    return before, inside, []


def one(p: Parameter, i: int, _: Call) -> Lines:
    """One element in, out or both."""
    n, size = p.name, p.size
    fill = "false" if p.struct else "true"
    t = p.element or "void"
    null = "" if p.role in ("count", "versioned") else "chance(6) ? nullptr : "
    before = [f"Bytes {n}_mem({size}, {fill}), {n}_new({size}, {fill}), {n}_old({size}, false);"]
    if p.role == "versioned":
        before += [
            f"uint32_t {n}_version = chance(2) ? 1 : {size} | (2u << 24);",
            f"std::memcpy({n}_mem.data(), &{n}_version, 4);",
            f"std::memcpy({n}_new.data(), &{n}_version, 4);",
        ]
    if p.role == "count":
        before += [
            f"*{n}_mem.as<{t}>() = {t}(below(6));",
            f"uint64_t {n}_sent = uint64_t(*{n}_mem.as<{t}>());",
            f"*{n}_new.as<{t}>() = {t}(below({n}_sent + 1));",
        ]
    before += [
        f"std::memcpy({n}_old.data(), {n}_mem.data(), {size});",
        f"auto* {n} = {null}{n}_mem.as<{t}>();",
    ]
    inside = [f'check((w[{i}] != 0) == ({n} != nullptr), "{n}");']
    if p.role != "out":
        inside.append(f'if (w[{i}]) check(equal(w[{i}], {n}_old.data(), {size}), "{n} in");')
    if p.role == "in":
        return before, inside, []
    inside.append(f"if (w[{i}]) std::memcpy(reinterpret_cast<void*>(w[{i}]), {n}_new.data(), {size});")
    return (
        before,
        inside,
        [f'if ({n}) check(!std::memcmp({n}_mem.data(), {n}_new.data(), {size}), "{n} back");'],
    )


def filled(p: Parameter) -> str:
    """How many elements come back: the count that the function reports, where there is one."""
    if p.length.startswith("*"):
        q = p.length[1:]
        return f"(status == 0 ? uint64_t(*{q}) : 0)"
    return elements(p)


def array(p: Parameter, i: int, _: Call) -> Lines:
    n, t = p.name, p.element or ("void*" if p.c_type == "void**" else "void")
    before = [
        f"const size_t {n}_bytes = {length(p)} * {p.size};",
        f"Bytes {n}_mem({n}_bytes, true), {n}_new({n}_bytes, true), {n}_old({n}_bytes, false);",
        f"std::memcpy({n}_old.data(), {n}_mem.data(), {n}_mem.size());",
        f"auto* {n} = chance(8) ? nullptr : {n}_mem.as<{t}>();",
    ]
    inside = [f'check((w[{i}] != 0) == ({n} != nullptr), "{n}");']
    if p.role in ("inarray", "inoutarray"):
        inside.append(f'if (w[{i}]) check(equal(w[{i}], {n}_old.data(), {n}_old.size()), "{n} in");')
    if p.role == "inarray":
        return before, inside, []
    inside.append(
        f"if (w[{i}]) std::memcpy(reinterpret_cast<void*>(w[{i}]), {n}_new.data(), {n}_new.size());"
    )
    return (
        before,
        inside,
        [
            f"if ({n}) check(!std::memcmp({n}_mem.data(), {n}_new.data(), {filled(p)} * {p.size}), "
            f'"{n} back");'
        ],
    )


def out_text(p: Parameter, i: int, _: Call) -> Lines:
    n, room = p.name, length(p)
    before = [
        f"Bytes {n}_mem({room}, true);",
        f"std::string {n}_text = letters({room} ? below({room}) : 0);",
        f"char* {n} = chance(8) ? nullptr : {n}_mem.data();",
    ]
    inside = [
        f'check((w[{i}] != 0) == ({n} != nullptr), "{n}");',
        f"if (w[{i}] && {room})",
        f"  std::memcpy(reinterpret_cast<void*>(w[{i}]), {n}_text.c_str(), {n}_text.size() + 1);",
    ]
    return before, inside, [f'if ({n} && {room}) check({n}_text == {n}, "{n} back");']


def handles_in(p: Parameter, i: int, _: Call) -> Lines:
    n = p.name
    before = [
        f"std::vector<void*> {n}_all({length(p)} + 1), {n}_real({length(p)} + 1);",
        f"for (uint64_t i = 0; i < {length(p)}; ++i)",
        f"  {n}_all[i] = known(kKind{p.kind}, {n}_real[i] = fresh());",
        f"auto* {n} = {n}_all.data();",
    ]
    inside = [f'check(w[{i}] && equal(w[{i}], {n}_real.data(), 8 * ({length(p)})), "{n}");']
    return before, inside, []


def handles_out(p: Parameter, i: int, _: Call) -> Lines:
    n = p.name
    before = [
        f"std::vector<void*> {n}_all({length(p)} + 1), {n}_real({length(p)} + 1);",
        f"for (void*& each : {n}_real) each = fresh();",
        f"auto* {n} = {n}_all.data();",
    ]
    inside = [
        f"if (w[{i}]) std::memcpy(reinterpret_cast<void*>(w[{i}]), {n}_real.data(), 8 * ({length(p)}));"
    ]
    after = f"for (uint64_t i = 0; i < {filled(p)}; ++i) "
    after += f'check(real_of(kKind{p.kind}, {n}_all[i]) == {n}_real[i], "{n} back");'
    return before, inside, [after]


def nothing(p: Parameter, i: int, _: Call) -> Lines:
    return [f"void* {p.name} = nullptr;"], [f'check(w[{i}] == 0, "{p.name}");'], []


ROLES: dict[str, Callable[[Parameter, int, Call], Lines]] = {
    "scalar": scalar,
    "devptr": device,
    "address": device,
    "handle": handle,
    "take": handle,
    "make": new_handle,
    "intern": new_handle,
    "text": text,
    "in": one,
    "out": one,
    "inout": one,
    "count": one,
    "versioned": one,
    "inarray": array,
    "outarray": array,
    "inoutarray": array,
    "outtext": out_text,
    "inhandles": handles_in,
    "outhandles": handles_out,
    "null": nothing,
}


def test(call: Call) -> str:
    before: list[str] = []
    inside: list[str] = []
    after: list[str] = []
    # Scalars and counts first: lengths of arrays name them.
    order = sorted(enumerate(call.parameters), key=lambda e: e[1].role not in ("scalar", "count"))
    for i, p in order:
        lines = ROLES[p.role](p, i, call)
        before += lines[0]
        inside += lines[1]
        after += lines[2]
    arguments = ", ".join(p.name for p in call.parameters)
    body = "\n".join(
        [
            *(f"  {x}" for x in before),
            "  const int wanted = outcome();",
            "  bool ran = false;",
            "  on_call = [&]([[maybe_unused]] const uint64_t* w) {",
            "    ran = true;",
            *(f"    {x}" for x in inside),
            "    return wanted;",
            "  };",
            f"  int status = {call.name}({arguments});",
            '  check(ran, "the backend was not called");',
            '  check(status == wanted, "result");',
            "  if (status != 0 || lenient) return;",
            *(f"  {x}" for x in after),
        ]
    )
    signature = ", ".join(f"{p.c_type}" for p in call.parameters)
    return f'extern "C" int {call.name}({signature});\nstatic void test_{call.name}() {{\n{body}\n}}\n'


def files() -> dict[str, str]:
    tested: list[Call] = []
    for library in ("driver", "nvml"):
        listed = calls(library)
        number(listed, library)
        tested += [c for c in listed if served(c) and c.client == "generated" and c.server == "generated"]
    # A check that refuses by its inputs alone needs inputs of its own; such calls are few and tested by hand.
    tested = [c for c in tested if not c.check or "attr" in c.check]
    out, groups = {}, []
    for n in range(0, len(tested), TESTS_PER_FILE):
        part, group = tested[n : n + TESTS_PER_FILE], f"tests_{n // TESTS_PER_FILE}"
        groups.append(group)
        rows = "\n".join(f'    {{"{c.name}", kOp_{c.name}, test_{c.name}}},' for c in part)
        installs = "\n".join(f"  install(session.{c.library}.{c.name});" for c in part)
        out[f"{group}.cpp"] = (
            '#include "roundtrip.h"\n\nnamespace roundtrip {\n\n'
            + "\n".join(test(c) for c in part)
            + f"\nvoid {group}(std::vector<Test>& all) {{\n  const Test mine[] = {{\n{rows}\n  }};\n"
            "  for (const Test& test : mine) all.push_back(test);\n}\n"
            f"void install_{group}() {{\n{installs}\n}}\n\n}}  // namespace roundtrip\n"
        )
    hand = sorted(hand_written()[0])
    out["hand.cpp"] = "// Written by hand in the client, which is not linked here.\n" + "".join(
        f'extern "C" int {name}() {{ return 999; }}\n' for name in hand
    )
    declared = "\n".join(f"void {g}(std::vector<Test>&);\nvoid install_{g}();" for g in groups)
    gathered = "\n".join(f"    {g}(made);" for g in groups)
    installed = "\n".join(f"  install_{g}();" for g in groups)
    out["all.cpp"] = (
        f'#include "roundtrip.h"\n\nnamespace roundtrip {{\n{declared}\n'
        "const std::vector<Test>& all_tests() {\n"
        "  static const std::vector<Test> all = [] {\n    std::vector<Test> made;\n"
        f"{gathered}\n    return made;\n  }}();\n"
        f"  return all;\n}}\nvoid install_all(Session&) {{\n{installed}\n}}\n}}  // namespace roundtrip\n"
    )
    return out


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        folder.joinpath(name).write_text(content)
    print(len(files()), "files")


if __name__ == "__main__":
    main()
