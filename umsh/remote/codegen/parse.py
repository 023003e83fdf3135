"""Read the public headers with libclang into tables/prototypes.json: names, types and layouts, no text.

Run by hand when a header's version changes: `python -m umsh.remote.codegen.parse --include DIR ...` with the
folders of cuda.h, cuda_runtime_api.h, cudaTypedefs.h and nvml.h. The rest works from the committed file.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[1] / "tables"
HEADERS = {"driver": "cuda.h", "cudart": "cuda_runtime_api.h", "nvml": "nvml.h"}
PREFIX = {"driver": "cu", "cudart": "cuda", "nvml": "nvml"}


class Layouts:
    """Sizes and fields of the structs that parameters use."""

    def __init__(self, cindex: Any) -> None:
        self.k = cindex.TypeKind
        self.found: dict[str, dict[str, Any]] = {}

    def describe(self, t: Any) -> dict[str, Any]:
        """Kind and size of a type: i/u int, f float, e enum, h handle, p pointer, s struct, c callback."""
        spelled = re.sub(r"\b(const|struct|enum|union) ", "", t.spelling).replace(" *", "*").strip()
        c = t.get_canonical()
        made: dict[str, Any] = {"type": spelled, "size": max(c.get_size(), 0)}
        if c.kind == self.k.POINTER:
            return {**made, **self.pointer(t.get_pointee() if t.kind == self.k.POINTER else c.get_pointee())}
        if c.kind in (self.k.CONSTANTARRAY, self.k.INCOMPLETEARRAY):
            item = self.describe(c.get_array_element_type())
            return {**made, "kind": "a", "item": item}
        if c.kind == self.k.RECORD:
            self.record(c)
            return {**made, "kind": "s", "struct": self.name_of(c)}
        if c.kind == self.k.ENUM:
            return {**made, "kind": "e"}
        if c.kind in (self.k.FLOAT, self.k.DOUBLE):
            return {**made, "kind": "f"}
        signed = c.kind in (
            self.k.INT,
            self.k.LONG,
            self.k.LONGLONG,
            self.k.SHORT,
            self.k.CHAR_S,
            self.k.SCHAR,
        )
        return {**made, "kind": "v" if c.kind == self.k.VOID else "i" if signed else "u"}

    def pointer(self, pointee: Any) -> dict[str, Any]:
        bare = pointee.get_canonical()
        if bare.kind in (self.k.FUNCTIONPROTO, self.k.FUNCTIONNOPROTO):
            return {"kind": "c"}
        if bare.kind == self.k.RECORD and bare.get_size() < 0:
            return {"kind": "h"}
        return {"kind": "p", "const": pointee.is_const_qualified(), "to": self.describe(pointee)}

    @staticmethod
    def name_of(c: Any) -> str:
        """A name without the place of an unnamed struct in its header."""
        name = re.sub(r"^(const )?(struct |union )?", "", c.spelling)
        return re.sub(r"\((unnamed|anonymous).*", "(unnamed)", name)

    def record(self, c: Any) -> None:
        name = self.name_of(c)
        if name in self.found and "(unnamed)" not in name:
            return
        declaration = c.get_declaration()
        made: dict[str, Any] = {"size": c.get_size(), "align": c.get_align()}
        self.found[name] = made
        made["pointers"] = sorted(set(self.pointers(c, 0, (), False)))
        made["fields"] = [
            {"name": f.spelling, "offset": f.get_field_offsetof() // 8, **self.describe(f.type)}
            for f in c.get_fields()
            if "unnamed" not in f.type.spelling and "anonymous" not in f.type.spelling
        ]
        made["union"] = declaration.kind.name == "UNION_DECL"

    def pointers(
        self, c: Any, base: int, path: tuple[str, ...], shared: bool
    ) -> Iterator[tuple[int, str, str]]:
        """Offset, kind and path of every pointer below, also of those that are alternatives of a union."""
        for f in c.get_fields():
            t = f.type.get_canonical()
            at, where = base + max(f.get_field_offsetof(), 0) // 8, (*path, f.spelling)
            if "(" in f.spelling or not f.spelling:
                where = path
            if t.kind == self.k.RECORD:
                yield from self.pointers(t, at, where, shared)
            elif t.kind == self.k.CONSTANTARRAY and t.get_array_element_type().kind == self.k.RECORD:
                yield from self.pointers(t.get_array_element_type(), at, where, shared)
            else:
                item = t.get_array_element_type().get_canonical() if t.kind == self.k.CONSTANTARRAY else t
                if item.kind == self.k.POINTER:
                    yield at, self.pointer(item.get_pointee())["kind"], ".".join(where)


def functions(cindex: Any, header: Path, args: list[str], prefix: str, layouts: Layouts) -> dict[str, Any]:
    flags = cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES
    unit = cindex.Index.create().parse(str(header), args=args, options=flags)
    errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise SystemExit(f"{header.name} does not parse: {errors[0]}")
    made: dict[str, Any] = {}
    for cursor in unit.cursor.get_children():
        if cursor.kind.name != "FUNCTION_DECL" or not re.match(prefix + "[A-Z]", cursor.spelling):
            continue
        # The public name is the one that the header writes; a macro may have given it a version.
        written = next(
            (
                t.spelling
                for t in cursor.get_tokens()
                if re.fullmatch(rf"{prefix}[A-Z]\w*", t.spelling) and not t.spelling.endswith("_t")
            ),
            cursor.spelling,
        )
        made.setdefault(
            cursor.spelling,
            {
                "public": written,
                "returns": layouts.describe(cursor.result_type)["type"],
                "parameters": [
                    {"name": p.spelling, **layouts.describe(p.type)} for p in cursor.get_arguments()
                ],
            },
        )
    return made


def typedef_names(header: Path) -> list[tuple[str, int, str]]:
    """(name, version, per-thread suffix) of every PFN_ type of cudaTypedefs.h."""
    rows = re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)", header.read_text())
    return sorted({(name, int(version), suffix) for name, version, suffix in rows})


def symbol_of(name: str, rank: int, suffix: str, declared: set[str]) -> str:
    """The export behind the rank-th version of a name: X, X_v2, X_v3, without those the header lacks."""
    candidates = [c for c in (name, *(f"{name}_v{n}" for n in range(2, 9))) if c in declared]
    return (candidates[min(rank, len(candidates) - 1)] if candidates else name) + suffix


def symbols(header: Path, declared: set[str]) -> list[dict[str, Any]]:
    rows = typedef_names(header)
    made = []
    for name, version, suffix in rows:
        versions = sorted({v for n, v, _ in rows if n == name})
        symbol = symbol_of(name, versions.index(version), suffix, declared)
        made.append({"name": name, "version": version, "flags": 2 if suffix else 1, "symbol": symbol})
    return made


def find(include: list[Path], name: str) -> Path:
    for folder in include:
        if (folder / name).exists():
            return folder / name
    raise SystemExit(f"{name} is in none of the --include folders")


def version_of(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else "?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--include", type=Path, action="append", required=True)
    include = parser.parse_args().include
    from clang import cindex

    layouts = Layouts(cindex)
    base = ["-x", "c", *(f"-I{folder}" for folder in include)]
    made: dict[str, Any] = {"libraries": {}}
    for library, name in HEADERS.items():
        path = find(include, name)
        public = functions(cindex, path, base, PREFIX[library], layouts)
        made["libraries"][library] = {"functions": public}
        text = path.read_text()
        pattern = {
            "driver": r"define CUDA_VERSION (\d+)",
            "cudart": r"define CUDART_VERSION\s+(\d+)",
            "nvml": r"define NVML_API_VERSION\s+(\d+)",
        }[library]
        made["libraries"][library]["version"] = version_of(text, pattern)
    for library, define in (
        ("driver", "__CUDA_API_VERSION_INTERNAL"),
        ("nvml", "NVML_NO_UNVERSIONED_FUNC_DEFS"),
    ):
        path, args = find(include, HEADERS[library]), [f"-D{define}", *base]
        every = functions(cindex, path, args, PREFIX[library], layouts)
        public = made["libraries"][library]["functions"]
        made["libraries"][library]["older"] = {n: f for n, f in every.items() if n not in public}
    driver = made["libraries"]["driver"]
    made["symbols"] = symbols(find(include, "cudaTypedefs.h"), {*driver["functions"], *driver["older"]})
    made["structs"] = dict(sorted(layouts.found.items()))
    TABLES.joinpath("prototypes.json").write_text(
        json.dumps(made, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n"
    )
    for library, table in made["libraries"].items():
        print(library, table["version"], len(table["functions"]), "public functions")


if __name__ == "__main__":
    main()
