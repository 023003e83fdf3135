"""Emits the client's half of each call: the exported function that encodes inputs and reads outputs."""

from __future__ import annotations

from .model import Call, Parameter

INVALID = {"driver": 1, "nvml": 2}
UNKNOWN = {"driver": 999, "nvml": 999}
UNSUPPORTED = {"driver": 801, "nvml": 3}


def signature(call: Call) -> str:
    return ", ".join(f"{p.c_type} {p.name}" for p in call.parameters)


def elements(p: Parameter) -> str:
    """Expression for the number of elements the program's array has room for."""
    if p.length.startswith("*"):
        return f"room({p.length[1:]})"
    if p.length.startswith("@"):
        return f"uint64_t({p.length[1:]})"
    return f"uint64_t({p.length})" if not p.length.isdigit() else p.length


def scalar_in(p: Parameter, value: str) -> str:
    if p.c_type == "float" or (p.c_type.endswith("*") and p.element == "float"):
        return f"call.f32({value});"
    if p.c_type == "double" or (p.c_type.endswith("*") and p.element == "double"):
        return f"call.f64({value});"
    return f"call.u64(word({value}));"


def encode(p: Parameter) -> list[str]:
    n = p.name
    if p.role == "scalar":
        return [scalar_in(p, n)]
    if p.role == "devptr":
        return [f"call.device({n});"]
    if p.role == "address":
        return [f"call.device(reinterpret_cast<uint64_t>({n}));"]
    if p.role in ("handle", "take"):
        return [f"call.handle(kKind{p.kind}, {n});"]
    if p.role == "make":
        return [f"uint64_t {n}_id = call.make(kKind{p.kind});"]
    if p.role == "text":
        return [f"call.text({n});"]
    if p.role == "versioned":
        return [f"call.blob({n}, versioned_nbytes({n}, {p.size}));"]
    if p.role in ("in", "inout"):
        if p.element and p.role == "inout":
            return [f"call.u64({n} != nullptr);", f"call.u64({n} ? word(*{n}) : 0);"]
        return [f"call.blob({n}, {p.size});"]
    if p.role == "count":
        return [f"call.u64({n} != nullptr);", f"call.u64(room({n}));"]
    if p.role in ("inarray", "inhandles", "inoutarray"):
        return [f"call.blob({n}, {elements(p)} * {p.size});"]
    if p.role == "null":
        return []
    return [f"call.u64({n} != nullptr);"]  # out, intern, outarray, outhandles, outtext


def decode(p: Parameter) -> list[str]:
    n = p.name
    if p.role == "intern":
        return [f"if ({n}) reply.u64({n}, 8);"]
    if (p.role in ("out", "inout") and p.element) or p.role == "count":
        return [f"if ({n}) reply.u64({n}, {p.size});"]
    if p.role == "versioned":
        return [f"reply.blob({n}, {n} ? versioned_nbytes({n}, {p.size}) : 0);"]
    if p.role in ("out", "inout"):
        return [f"if ({n}) reply.bytes({n}, {p.size});"]
    if p.role in ("outarray", "outhandles", "outtext", "inoutarray"):
        return [f"reply.blob({n}, {n}_nbytes);"]
    return []


def guards(call: Call) -> list[str]:
    invalid = INVALID[call.library]
    made = [f"if ({p.name} == nullptr) return {invalid};" for p in call.parameters if p.role == "make"]
    made += [
        f'if ({p.name} != nullptr) return refuse("{call.public}", {UNSUPPORTED[call.library]});'
        for p in call.parameters
        if p.role == "null"
    ]
    for p in call.parameters:
        if not p.length or p.role in ("devptr", "address"):  # memory of the device does not travel
            continue
        made.append(f"if ({p.name} && too_long({elements(p)}, {p.size})) return {invalid};")
        if p.role in ("outarray", "outhandles", "outtext", "inoutarray"):
            made.append(f"const uint64_t {p.name}_nbytes = {elements(p)} * {p.size};")
    return made


def alias(call: Call) -> str:
    named = [f"{t} a{n}" for n, t in enumerate(call.types)]
    arguments = ", ".join(f"a{n}" for n in range(len(named)))
    return (
        f"UMSH_EXPORT int {call.alias}({', '.join(call.types)});\n"
        f"UMSH_EXPORT int {call.name}({', '.join(named)}) {{ return {call.alias}({arguments}); }}\n"
    )


def export(call: Call) -> str:
    if call.alias:
        return alias(call)
    lines = [*guards(call), f"Call call(kOp_{call.name});"]
    for p in call.parameters:
        lines += encode(p)
    if call.has_reply:
        # Some calls say how much room they need by an error and a count; outputs are read whenever they came.
        lines += [
            "Reply reply = call.reply();",
            "if (reply.result != 0 && reply.empty()) return reply.result;",
        ]
        for p in call.parameters:
            lines += decode(p)
        handles = [p for p in call.parameters if p.role == "make"]
        lines += [f"if (reply.result == 0) *{p.name} = as_pointer({p.name}_id);" for p in handles]
        lines += [f"return reply.ok() ? reply.result : {UNKNOWN[call.library]};"]
    else:
        made = [p for p in call.parameters if p.role == "make"]
        if made:
            lines += ["int status = call.status();"]
            lines += [f"if (status == 0) *{p.name} = as_pointer({p.name}_id);" for p in made]
            lines += ["return status;"]
        else:
            lines += ["return call.status();"]
    body = "\n".join(f"  {line}" for line in lines)
    return f"UMSH_EXPORT int {call.name}({signature(call)}) {{\n{body}\n}}\n"


def per_thread(call: Call, symbol: str) -> str:
    """The export for programs whose default stream is the thread's own."""
    if call.unsupported or (call.client == "hand" and not call.parameters):
        return unsupported(symbol, call.library)
    made = f"UMSH_EXPORT int {call.name}({signature(call)});\n"
    arguments = ", ".join(
        f"ptsz({p.name})" if p.kind == "Stream" and p.role in ("handle", "take") else p.name
        for p in call.parameters
    )
    return f"{made}UMSH_EXPORT int {symbol}({signature(call)}) {{ return {call.name}({arguments}); }}\n"


def unsupported(name: str, library: str) -> str:
    return f'UMSH_EXPORT int {name}() {{ return refuse("{name}", {UNSUPPORTED[library]}); }}\n'
