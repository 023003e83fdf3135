"""Joins prototypes and tables: rules by pattern first, exceptions after; refuses a vague description."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from .model import TABLES, Call, Parameter, TableError, prototypes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COUNT = re.compile(r"^(num|count|nb)[A-Z]?\w*$|^n$|^len$|^length$|^size$|\w(Count|Size|Length)$|^bufferSize$")
INTEGERS = {
    ("i", 1): "char",
    ("i", 2): "short",
    ("i", 4): "int",
    ("i", 8): "int64_t",
    ("u", 1): "unsigned char",
    ("u", 2): "unsigned short",
    ("u", 4): "unsigned",
    ("u", 8): "uint64_t",
}
RESERVED = {"status", "call", "reply", "in", "out", "s", "error", "word", "room"}
SPEC = re.compile(r"(\w+)(?:\[([*\w]+|@.+)\])?(?::(\w+))?")


def scalar(described: dict[str, Any]) -> str:
    """C type at ABI level, or "" when it is no scalar."""
    kind, size = described["kind"], described["size"]
    if kind in "iu":
        return INTEGERS[kind, size]
    if kind == "e":
        return "int"
    if kind == "f":
        return "float" if size == 4 else "double"
    if kind == "s" and described["size"] == 8:
        return "uint64_t"  # a small struct by value travels in one register
    return ""


def safe(name: str) -> str:
    """A parameter's name, where it is none that the generated functions use themselves."""
    bare = name.removeprefix("*")
    return f"{name}_" if bare in RESERVED else name


def hand_written() -> tuple[set[str], set[str]]:
    """The calls that the client exports and the server serves by hand: their sources say so themselves."""
    native = TABLES.parent / "native"
    client = [p for folder in ("client", "nvml") for p in sorted((native / folder).glob("*.cpp"))]
    exported = {
        n for p in client for n in re.findall(r"^UMSH_EXPORT [\w* ]+?\*?(\w+)\(", p.read_text(), re.M)
    }
    server = sorted((native / "server").glob("*.cpp"))
    served = {n for p in server for n in re.findall(r"^int serve_(\w+)\(", p.read_text(), re.M)}
    return exported, served


OUTPUTS = ("out", "inout", "bytes", "outtext", "count")


class Rules:
    """The table of one library."""

    def __init__(self, library: str, structs: dict[str, Any]) -> None:
        self.library = library
        self.table: dict[str, Any] = tomllib.loads((TABLES / f"{library}.toml").read_text())
        self.layouts = structs
        self.kinds: dict[str, str] = self.table["handles"]
        self.exported, self.served = hand_written()
        self.rules = [
            (re.compile(r["call"]), re.compile(r["parameter"]), r["is"]) for r in self.table["rule"]
        ]

    def named(self, section: str, key: str, name: str) -> bool:
        patterns: Iterable[str] = self.table.get(section, {}).get(key, ())
        return any(re.fullmatch(pattern, name) for pattern in patterns)

    def reason(self, name: str) -> str:
        for reason, patterns in self.table.get("unsupported", {}).items():
            if any(re.fullmatch(pattern, name) for pattern in patterns):
                return str(reason).replace("_", " ")
        return ""

    def spec(self, call: str, p: dict[str, Any], others: set[str]) -> str:
        """What the tables say of a parameter; a pattern applies only where its words make sense."""
        exact: str | None = self.table.get("call", {}).get(call, {}).get(p["name"])
        if exact is not None:
            return exact
        for name, which, spec in self.rules:
            if name.fullmatch(call) and which.fullmatch(p["name"]) and self.fits(spec, p, others):
                return str(spec)
        return ""

    def fits(self, spec: str, p: dict[str, Any], others: set[str]) -> bool:
        role, length, _ = SPEC.fullmatch(spec).groups("")  # type: ignore[union-attr]
        address = p["kind"] == "u" and p["type"].startswith("CUdeviceptr") and role == "devptr"
        if not (p["kind"] in "ph" or address) or (
            length and length[0] != "@" and length.lstrip("*") not in others
        ):
            return False
        if p["kind"] == "h" and role in OUTPUTS:
            return False
        if role == "outtext":
            return bool(p.get("to", {}).get("type") == "char" and not p["const"])
        return role != "count" or bool(p["kind"] == "p" and self.flat(p["to"]))

    def c_type(self, p: dict[str, Any]) -> str:
        if p["kind"] in "hc":
            return "void*"
        if p["kind"] == "p":
            to, const = p["to"], "const " if p["const"] else ""
            if to["kind"] in "hp":
                return "void* const*" if const else "void**"
            return (
                f"{const}{scalar(to) if to['kind'] != 's' else ''}".strip() + "*"
                if self.flat(to)
                else f"{const}void*"
            )
        made = scalar(p)
        if not made:
            raise TableError(f"{p['name']}: a {p['type']} by value")
        return made

    def flat(self, to: dict[str, Any]) -> bool:
        return to["kind"] != "s" and bool(scalar(to))

    def parameter(self, call: str, p: dict[str, Any], counted: bool, others: set[str]) -> Parameter:
        spec, c_type = self.spec(call, p, others), self.c_type(p)
        to = p.get("to", {})
        size = int(to.get("size", p["size"])) if p["kind"] == "p" else int(p["size"])
        element = scalar(to) if to and self.flat(to) else ""
        found = SPEC.fullmatch(spec) if spec else None
        role, length, kind = found.groups("") if found else ("", "", "")
        if not role:
            role = self.by_type(call, p, counted)
        if p["kind"] == "h" and role in OUTPUTS:
            raise TableError(f"{call}: {p['name']}: a handle by value is no output")
        base = to if p["kind"] == "p" else p
        if base.get("kind") == "h" and not kind:
            kind = self.kinds.get(base["type"], "")
            if not kind:
                raise TableError(f"{call}: {p['name']}: no kind for {base['type']}")
        if length and role in ("in", "out", "inout"):
            role = {"in": "inarray", "out": "outarray", "inout": "inoutarray"}[role]
            if base.get("kind") == "h":
                role = {"inarray": "inhandles", "outarray": "outhandles"}[role]
        if role in ("bytes", "bytesin"):
            role, size = ("inarray" if p["const"] or role == "bytesin" else "outarray"), 1
        struct = base.get("struct", "")
        described = struct in self.table.get("struct", {})
        if struct and (described or self.layouts[struct]["pointers"]) and role not in ("null", "hand"):
            if not described:
                raise TableError(f"{call}: {p['name']}: {struct} holds pointers and has no rule")
            if length and not self.table["struct"][struct].get("raw"):
                raise TableError(f"{call}: {p['name']}: an array of {struct}, which holds pointers")
            struct = "" if self.table["struct"][struct].get("raw") else struct
        else:
            struct = ""
        if role == "inout" and self.library == "nvml" and self.versioned(to):
            role = "versioned"
        if role in ("in", "out", "inout") and size == 0:
            raise TableError(f"{call}: {p['name']}: {p['type']} has no size")
        return Parameter(safe(p["name"]), c_type, role, element, max(size, 0), safe(length), kind, struct)

    def by_type(self, call: str, p: dict[str, Any], counted: bool) -> str:
        if p["kind"] == "h":
            return "handle"
        if p["kind"] == "c":
            raise TableError(f"{call}: {p['name']} is a callback")
        if p["kind"] != "p":
            return "devptr" if p["type"].startswith("CUdeviceptr") else "scalar"
        to = p["to"]
        if to["kind"] in "vpc":
            raise TableError(f"{call}: {p['name']}: {p['type']} needs an annotation")
        if to["type"] == "char" and p["const"]:
            return "text"
        if to["type"] == "char":
            raise TableError(f"{call}: {p['name']}: text that the call writes needs its room")
        if counted:
            raise TableError(f"{call}: {p['name']}: a pointer beside a count needs an annotation")
        if to["kind"] == "h":
            return "intern"
        if p["const"]:
            return "in"
        return "inout" if self.versioned(to) else "out"

    def versioned(self, to: dict[str, Any]) -> bool:
        """NVML structs whose first field is a version are read by the call."""
        fields = self.layouts.get(to.get("struct", ""), {}).get("fields", ())
        return any(f["name"] == "version" for f in fields)


def describe(rules: Rules, name: str, prototype: dict[str, Any], current: bool) -> Call:
    call = Call(name, rules.library, prototype["public"] if current else name, current)
    call.client = "hand" if name in rules.exported else "generated"
    call.server = "hand" if name in rules.served or rules.named("hand", "server", name) else "generated"
    call.unsupported = rules.reason(name)
    call.check = rules.table.get("call", {}).get(name, {}).get("check", "")
    call.alias = rules.table.get("alias", {}).get(name, "")
    if call.alias:
        call.travels, call.server = "local", "hand"
    call.blocking = rules.named("travels", "blocking", name)
    call.changes_card = rules.named("travels", "changes_card", name)
    for way in ("local", "cached", "async", "prefetch"):
        if not call.alias and rules.named("travels", way, name):
            call.travels = way
            break
    if any(p["type"].startswith("CUdeviceptr_v1") for p in prototype["parameters"]):
        call.unsupported = "addresses of 32 bits"
    try:
        call.types = [rules.c_type(p) for p in prototype["parameters"]]
    except TableError as error:
        call.unsupported = call.unsupported or str(error)
    if (
        call.unsupported
        or call.alias
        or (call.client == "hand" and (call.server == "hand" or call.travels == "local"))
    ):
        return call
    parameters = prototype["parameters"]
    counted = any(COUNT.search(p["name"]) for p in parameters) and any(p["kind"] == "p" for p in parameters)
    try:
        others = {p["name"] for p in parameters}
        call.parameters = [rules.parameter(name, p, counted and p["kind"] == "p", others) for p in parameters]
    except TableError as error:
        if current and call.client != "hand" and not rules.table.get("draft"):
            raise
        call.unsupported = str(error) if call.client != "hand" else ""
        call.server = "hand" if call.client == "hand" else call.server
        return call
    if call.travels == "local":
        raise TableError(f"{name}: a call that the client answers is written by hand there")
    if call.travels in ("async", "prefetch") and call.has_reply:
        raise TableError(f"{name}: an asynchronous call has no outputs")
    return call


def calls(library: str, made: dict[str, Any] | None = None) -> list[Call]:
    """Every exported call of a library, by name; per-thread variants (_ptds, _ptsz) are left out."""
    all_of = made or prototypes()
    table, rules = all_of["libraries"][library], Rules(library, all_of["structs"])
    both = [(n, f, True) for n, f in table["functions"].items()]
    both += [(n, f, False) for n, f in table.get("older", {}).items()]
    listed = [describe(rules, n, f, c) for n, f, c in both if not re.search(r"_pt[ds][sz]$", n)]
    return sorted(listed, key=lambda call: call.name)
