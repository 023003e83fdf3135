"""The runtime API lowered onto the driver: native/generated/cudart_*.cpp from tables/cudart.toml."""

from __future__ import annotations

import re
import sys
from typing import Any

from .model import TABLES, Call
from .tables import MARK

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HEAD = MARK + '#include "cudart/runtime.h"\n\nusing namespace umsh::cudart;\n\n'
EXPORT = re.compile(r"^UMSH_EXPORT [\w\s*]+?[\s*](\w+)\(", re.MULTILINE)
SCALARS = {"e4": "int", "i4": "int", "u4": "unsigned", "u8": "uint64_t", "i8": "int64_t", "i1": "char"}
SAME_STRUCTS = {
    "cudaMemLocation": "uint64_t",
    "CUmemLocation": "uint64_t",
}  # two ints: travels in one register
DRIVER_NAMES = ("_v3", "_v2", "")


def c_type(parameter: dict[str, Any]) -> str:
    """Type at ABI level; "" for a struct by value that nothing here declares."""
    if parameter["kind"] in "phc":  # c: a callback
        return "void*"
    if parameter["kind"] == "s":
        return SAME_STRUCTS.get(parameter["type"], "")
    return SCALARS.get(f"{parameter['kind']}{parameter['size']}", "")


def shape(function: dict[str, Any]) -> list[str]:
    return [c_type(p).replace("int64_t", "8") for p in function["parameters"]]


def matches(pattern_list: list[str], name: str) -> bool:
    return any(re.fullmatch(p, name) for p in pattern_list)


class Lowering:
    """What each runtime call becomes."""

    def __init__(self, made: dict[str, Any]) -> None:
        self.rules = tomllib.loads((TABLES / "cudart.toml").read_text())
        self.functions = made["libraries"]["cudart"]["functions"]
        driver = made["libraries"]["driver"]
        self.driver = driver["older"] | driver["functions"]
        native = TABLES.parent / "native" / "cudart"
        self.hand = {n for p in sorted(native.glob("*.cpp")) for n in EXPORT.findall(p.read_text())}

    def target(self, name: str) -> str:
        """The driver call with its arguments; "" when there is none."""
        if name in self.rules["lower"]:
            return str(self.rules["lower"][name])
        if matches(self.rules["differ"], name):
            return ""
        for ending in DRIVER_NAMES:
            found = f"cu{name[4:]}{ending}"
            if found in self.driver and self.fits(name, found):
                return f"{found}({', '.join(self.arguments(name))})"
        return ""

    def fits(self, name: str, driver_name: str) -> bool:
        mine, other = shape(self.functions[name]), shape(self.driver[driver_name])
        same = [{a, b} <= {"void*", "u8", "8"} or a == b for a, b in zip(mine, other, strict=False)]
        return len(mine) == len(other) and all(same) and all(mine)

    def arguments(self, name: str) -> list[str]:
        names = [p["name"] for p in self.functions[name]["parameters"]]
        return ["function" if n == "func" and self.names_kernel(name) else n for n in names]

    def names_kernel(self, name: str) -> bool:
        return matches(self.rules["kernel"], name)

    def declared(self, name: str) -> str:
        listed = self.functions[name]["parameters"]
        return ", ".join(f"{c_type(p)} {p['name']}" for p in listed)

    def refusal(self, name: str) -> str:
        return f'UMSH_EXPORT int {name}() {{ return unsupported("{name}"); }}\n'

    def export(self, name: str) -> str:
        """One function that is not written by hand."""
        target = self.target(name)
        if not target:
            return self.refusal(name)
        symbol, arguments = target.split("(", 1)
        passed = arguments[:-1]
        body = f'  static Symbol f{{"{symbol}"}};\n'
        if self.names_kernel(name):
            body += "  void* function = nullptr;\n"
            body += "  if (int error = function_of(func, &function)) return done(error);\n"
        body += f"  return lower(f{', ' if passed else ''}{passed});\n"
        return f"UMSH_EXPORT int {name}({self.declared(name)}) {{\n{body}}}\n"

    def per_thread(self, symbol: str) -> str:
        """The variant whose null stream is the thread's own."""
        name = symbol[:-5]
        listed = self.functions[name]["parameters"]
        if name not in self.hand and not self.target(name):
            return self.refusal(symbol)
        types = [BY_VALUE.get(p["type"], c_type(p)) for p in listed]
        declared = ", ".join(f"{t} {p['name']}" for t, p in zip(types, listed, strict=True))
        passed = ", ".join(
            f"per_thread({p['name']})" if p["type"] == "cudaStream_t" else p["name"] for p in listed
        )
        again = f"UMSH_EXPORT int {name}({', '.join(types)});\n"
        return f"{again}UMSH_EXPORT int {symbol}({declared}) {{ return {name}({passed}); }}\n"


BY_VALUE = {"cudaExtent": "Extent", "cudaPitchedPtr": "PitchedPointer", "dim3": "Dim3"}


def files(made: dict[str, Any]) -> dict[str, str]:
    """Name and content of the generated sources."""
    lowering = Lowering(made)
    variants = [s for s in lowering.rules["per_thread"]["names"] if s not in lowering.hand]
    left = [n for n in sorted(lowering.functions) if n not in lowering.hand]
    other = lowering.rules["other_headers"]["names"]
    return {
        "cudart_calls.cpp": HEAD + "\n".join([*map(lowering.export, left), *map(lowering.refusal, other)]),
        "cudart_per_thread.cpp": HEAD + "\n".join(lowering.per_thread(s) for s in variants),
    }


def calls(made: dict[str, Any]) -> list[Call]:
    """The runtime's calls for the coverage document."""
    lowering = Lowering(made)
    out = []
    for name in sorted(lowering.functions):
        hand = name in lowering.hand
        reason = "" if hand or lowering.target(name) else "not lowered"
        made_by = "hand" if hand else "generated"
        out.append(Call(name, "cudart", name, True, client=made_by, travels="local", unsupported=reason))
    return out
