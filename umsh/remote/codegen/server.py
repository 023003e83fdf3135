"""Emits the server's half of each call: decode, check, call the driver, encode the outputs."""

from __future__ import annotations

from .client import INVALID, UNSUPPORTED
from .model import Call, Parameter

INVALID_VALUE = 1  # CUresult; only the driver's calls take device pointers


def elements(p: Parameter) -> str:
    if p.length.startswith("*"):
        return f"({p.length[1:]}_on ? uint64_t({p.length[1:]}) : 0)"
    if p.length.startswith("@"):
        return f"uint64_t({p.length[1:]})"
    return f"uint64_t({p.length})" if not p.length.isdigit() else p.length


def decode(p: Parameter) -> list[str]:
    n = p.name
    if p.role == "scalar":
        return [f"auto {n} = in_scalar<{p.c_type}>(in);"]
    if p.role in ("devptr", "address"):
        return [f"uint64_t {n} = in.u64();"]
    if p.role in ("handle", "take", "make"):
        return [f"uint64_t {n}_id = in.u64();"]
    if p.role == "text":
        return [f"std::string {n};", f"bool {n}_on = in.text({n});"]
    if p.role == "versioned":
        return [f"Versioned<{p.size}> {n}(in.blob());"]
    if p.role in ("in", "inout"):
        if p.element and p.role == "inout":
            return [f"bool {n}_on = in.u64() != 0;", f"auto {n} = in_scalar<{p.element}>(in);"]
        if p.element:
            return [f"{p.element} {n}{{}};", f"bool {n}_on = in.exact(&{n}, {p.size});"]
        return [f"alignas(64) unsigned char {n}[{p.size}] = {{}};", f"bool {n}_on = in.exact({n}, {p.size});"]
    if p.role == "count":
        return [f"bool {n}_on = in.u64() != 0;", f"auto {n} = in_scalar<{p.element}>(in);"]
    if p.role in ("inarray", "inhandles", "inoutarray"):
        return [f"Blob {n}_in = in.blob();"]
    if p.role == "null":
        return []
    return [f"bool {n}_on = in.u64() != 0;"]


def overflow(p: Parameter) -> list[str]:
    """A product that wraps around would pass the check as a small number."""
    count, product, size = p.length.removeprefix("@").partition(" * ")
    return [f"if ({count} > UINT64_MAX / {size}) return {INVALID_VALUE};"] if product else []


def prepare(p: Parameter) -> list[str]:
    """After everything is decoded: arrays get room, handles their real values, pointers their checks."""
    n = p.name
    if p.role == "handle":
        return [f"void* {n} = s.lookup(kKind{p.kind}, {n}_id, &error);"]
    if p.role == "make":
        return [f"void* {n} = nullptr;"]
    if p.role == "devptr":
        return [*overflow(p), f"if (!error) error = s.check({n}, {elements(p) if p.length else '1'});"]
    if p.role == "intern":
        return [f"void* {n} = nullptr;"]
    if p.role == "out":
        if p.element:
            return [f"{p.element} {n}{{}};"]
        return [f"alignas(64) unsigned char {n}[{p.size}] = {{}};"]
    if p.role == "versioned":
        made = (
            [f"if ({n}.data() && !error) error = translate_{p.struct}(s, {n}.data(), Way::kIn);"]
            if p.struct
            else []
        )
        return [f"if (!{n}.fits) return kWireError;", *made]
    if p.role in ("in", "inout") and p.struct:
        return [f"if ({n}_on && !error) error = translate_{p.struct}(s, {n}, Way::kIn);"]
    if p.role == "inarray":
        return [f"InArray {n}({n}_in, {elements(p)}, {p.size});", f"if (!{n}.fits) return kWireError;"]
    if p.role == "inoutarray":
        return [f"InOutArray {n}({n}_in, {elements(p)}, {p.size});", f"if (!{n}.fits) return kWireError;"]
    if p.role == "inhandles":
        return [
            f"InHandles {n}(s, kKind{p.kind}, {n}_in, {elements(p)}, &error);",
            f"if (!{n}.fits) return kWireError;",
        ]
    if p.role in ("outarray", "outhandles", "outtext"):
        return [f"OutArray {n}({n}_on, {elements(p)}, {p.size});"]
    return []


def takes(p: Parameter) -> list[str]:
    """Handles end last: a refused call leaves them as they are."""
    return [f"void* {p.name} = s.take(kKind{p.kind}, {p.name}_id, &error);"] if p.role == "take" else []


def argument(p: Parameter) -> str:
    n = p.name
    if p.role == "address":
        return f"reinterpret_cast<void*>({n})"
    if p.role in ("make",):
        return f"&{n}"
    if p.role == "text":
        return f"{n}_on ? {n}.c_str() : nullptr"
    if p.role == "null":
        return "nullptr"
    if p.role == "intern" or (p.role in ("in", "out", "inout", "count") and p.element):
        return f"{n}_on ? &{n} : nullptr"
    if p.role in ("in", "out", "inout"):
        return f"{n}_on ? {n} : nullptr"
    if p.role == "versioned":
        return f"{n}.data()"
    if p.role in ("inarray", "inoutarray", "outarray", "outtext"):
        const = "const " if p.c_type.startswith("const") else ""
        return (
            f"static_cast<{const}{p.element or ('void*' if p.c_type == 'void**' else 'void')}*>({n}.data())"
        )
    if p.role in ("inhandles", "outhandles"):
        return f"{n}.handles()"
    return n


def encode(p: Parameter) -> list[str]:
    n = p.name
    if p.role == "intern":
        return [f"if ({n}_on) out.u64(s.intern(kKind{p.kind}, {n}));"]
    if (p.role in ("out", "inout") and p.element) or p.role == "count":
        return [f"if ({n}_on) out_scalar(out, {n});"]
    if p.role == "versioned":
        made = [f"if ({n}.data()) translate_{p.struct}(s, {n}.data(), Way::kOut);"] if p.struct else []
        return [*made, f"{n}.write(out);"]
    if p.role in ("out", "inout"):
        made = [f"if ({n}_on) translate_{p.struct}(s, {n}, Way::kOut);"] if p.struct else []
        return [*made, f"if ({n}_on) out.blob({n}, {p.size});"]
    if p.role in ("outarray", "inoutarray"):
        return [f"{n}.write(out, status == 0 ? {elements(p)} : 0);"]
    if p.role == "outtext":
        return [f"{n}.write_text(out);"]
    if p.role == "outhandles":
        return [f"{n}.write_handles(s, kKind{p.kind}, out, status == 0 ? {elements(p)} : 0);"]
    return []


def serve(call: Call) -> str:
    lines: list[str] = []
    for p in call.parameters:
        lines += decode(p)
    lines += ["if (!in.finished()) return kWireError;", "int error = 0;"]
    if call.changes_card:
        lines += ["if (!s.may_change_card()) return 4;  // no permission"]
    for p in sorted(call.parameters, key=lambda p: p.role == "outarray"):
        lines += prepare(p)
    lines += [f"if (!error) error = {call.check};"] if call.check else []
    arrays = [p for p in call.parameters if p.role in ("outarray", "outhandles", "outtext")]
    lines += [f"if (!{p.name}.fits) error = {INVALID[call.library]};" for p in arrays]
    # Handles and addresses are judged in CUresult; NVML knows one word for what is wrong with an argument.
    refuse = "if (error) return error;" if call.library == "driver" else "if (error) return 2;"
    lines += [refuse]
    ends = [line for p in call.parameters for line in takes(p)]
    lines += [*ends, refuse] if ends else []
    arguments = "".join(f", {argument(p)}" for p in call.parameters)
    lines += [f"int status = invoke(s.{call.library}.{call.name}, {UNSUPPORTED[call.library]}{arguments});"]
    lines += [
        f"if (status == 0) s.add(kKind{p.kind}, {p.name}_id, {p.name});"
        for p in call.parameters
        if p.role == "make"
    ]
    if call.has_reply:
        sized = any(p.role in ("count",) for p in call.parameters)
        lines += [] if sized else ["if (status != 0) return status;"]
        for p in call.parameters:
            lines += encode(p)
    lines += ["return status;"]
    body = "\n".join(f"  {line}" for line in lines)
    unused = "" if any("s." in line or "(s" in line for line in lines) else "[[maybe_unused]] "
    return (
        f"int serve_{call.name}({unused}Session& s, [[maybe_unused]] Reader& in, "
        "[[maybe_unused]] Writer& out) {\n"
        f"{body}\n}}\n"
    )
