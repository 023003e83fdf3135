"""Emits the translation of handles inside structs, and declarations of structs that are read by hand."""

from __future__ import annotations

from typing import Any

from .rules import Rules, scalar
from .tables import MARK

ENUM_SIZE = 4


def field_of(layout: dict[str, Any], path: str) -> int:
    for offset, _, name in layout["pointers"]:
        if name == path:
            return int(offset)
    return next(int(f["offset"]) for f in layout["fields"] if f["name"] == path)


def translated(holders: list[Rules]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, rule and layout of each struct with handles or pointers."""
    return [(n, rule, r.layouts[n]) for r in holders for n, rule in r.table.get("struct", {}).items()]


def translations(holders: list[Rules]) -> str:
    """Declares one function a struct; those of the tables' `custom` are written by hand in native/server."""
    made = [MARK, '#pragma once\n\n#include "server/decode.h"\n\nnamespace umsh {\n\nstruct Session;\n\n']
    for name, _, _ in translated(holders):
        made.append(f"int translate_{name}(Session& s, void* data, Way way);\n")
    return "".join([*made, "\n}  // namespace umsh\n"])


def translation_bodies(holders: list[Rules]) -> str:
    made = [
        MARK + '#include "generated/structs.h"\n#include "server/session.h"\n#include "server/structs.h"\n\n'
        "namespace umsh {\n"
    ]
    for name, rule, layout in translated(holders):
        if rule.get("custom") or rule.get("raw"):
            continue
        lines = ["  int error = 0;"]
        for path, kind in rule.get("handles", {}).items():
            lines.append(f"  translate_handle(s, data, {field_of(layout, path)}, kKind{kind}, way, &error);")
        for path, kind in rule.get("out", {}).items():
            lines.append(f"  if (way == Way::kIn) set_field(data, {field_of(layout, path)}, 0);")
            lines.append(f"  translate_handle(s, data, {field_of(layout, path)}, kKind{kind}, way, &error);")
        for path in rule.get("null", ()):
            lines.append(f"  require_null(data, {field_of(layout, path)}, way, &error);")
        for path in rule.get("device", ()):
            lines.append(f"  check_device(s, data, {field_of(layout, path)}, way, &error);")
        body = "\n".join([*lines, "  return error;"])
        made.append(
            f"int translate_{name}([[maybe_unused]] Session& s, void* data, Way way) {{\n{body}\n}}\n"
        )
    return "\n".join([*made, "}  // namespace umsh\n"])


def declaration(name: str, layouts: dict[str, Any]) -> str:
    """A struct of our own with the layout that the library expects; unions and padding are bytes."""
    layout, lines, at = layouts[name], [], 0
    for f in sorted(layout["fields"], key=lambda f: f["offset"]):
        if f["offset"] < at:
            continue  # another member of a union, or a bit field
        if f["offset"] > at and f["kind"] != "p":
            lines.append(f"  unsigned char gap_{at}[{f['offset'] - at}];")
        lines.append(f"  {member(f)};")
        at = f["offset"] + f["size"]
    if at < layout["size"]:
        lines.append(f"  unsigned char gap_{at}[{layout['size'] - at}];")
    body = "\n".join(lines)
    return (
        f"struct alignas({layout['align']}) {name} {{\n{body}\n}};\n"
        f'static_assert(sizeof({name}) == {layout["size"]}, "{name}");\n'
    )


def member(f: dict[str, Any]) -> str:
    if f["kind"] in "hcp":
        return f"void* {f['name']}"
    plain = scalar(f) if f["kind"] != "s" else ""
    if plain:
        return f"{plain} {f['name']}"
    if f["kind"] == "a" and scalar(f["item"]) and f["item"]["kind"] != "s":
        return f"{scalar(f['item'])} {f['name']}[{f['size'] // f['item']['size']}]"
    return (
        f"alignas(8) unsigned char {f['name']}[{f['size']}]"
        if f["offset"] % 8 == 0
        else (f"unsigned char {f['name']}[{f['size']}]")
    )


def abi(holders: list[Rules]) -> str:
    wanted = [(n, r.layouts) for r in holders for n in r.table.get("abi", {}).get("structs", ())]
    return (
        f"{MARK}#pragma once\n\n#include <cstddef>\n#include <cstdint>\n\nnamespace umsh::abi {{\n\n"
        + "\n".join(declaration(n, layouts) for n, layouts in wanted)
        + "\n}  // namespace umsh::abi\n"
    )
