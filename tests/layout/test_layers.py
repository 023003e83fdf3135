"""Who may import whom, and how long a file or function may be: design rules that a machine can check."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = {"backends": "umsh.backends", "correctness": "umsh.correctness", "microbench": "umsh.microbench"}

# Each layer may import itself and the layers before it. A prefix stands for the module and all below it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("umsh.errors",),
    ("umsh.machine", "umsh.native", "umsh.device"),
    ("umsh.mechanism", "umsh.need"),
    ("umsh.backends",),
    ("umsh.records", "umsh.profile", "umsh.choice", "umsh.possible", "umsh.resolve"),
    ("umsh.lifetime", "umsh.methods", "umsh.abi", "umsh.dlpack", "umsh.views", "umsh.loan", "umsh.adopt"),
    ("umsh.region", "umsh.handle", "umsh.turns", "umsh.control", "umsh.verbs", "umsh.transfer"),
    ("umsh.api", "umsh.explanation"),
    ("umsh.files",),
    ("umsh",),
    ("umsh.correctness", "umsh.microbench", "umsh.lan", "umsh.fabric", "umsh.remote"),
    ("umsh.probe", "umsh.report", "umsh.cli"),
)
PYTHON_LINES_MAX, NATIVE_LINES_MAX, FUNCTION_LINES_MAX = 300, 450, 60
NATIVE = {".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".cl", ".clh"}


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts[0] = TOP.get(parts[0], parts[0])
    return ".".join(parts).removesuffix(".__init__")


def layer(module: str) -> int:
    """The layer of the longest prefix that names the module; the package's own name only for itself."""
    best, length = -1, 0
    for level, prefixes in enumerate(LAYERS):
        for prefix in prefixes:
            fits = module == prefix or (prefix != "umsh" and module.startswith(prefix + "."))
            if fits and len(prefix) > length:
                best, length = level, len(prefix)
    return best


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                keep = len(parts) - node.level + (1 if is_package else 0)
                base = ".".join([*parts[:keep], *([base] if base else [])])
            yield node.lineno, base
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def library_files() -> list[Path]:
    roots = {"umsh", *TOP}
    return [p for p in tracked() if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in roots]


@pytest.mark.parametrize("path", library_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_its_own_layer_or_lower_ones(path: Path) -> None:
    module = module_name(path)
    here = layer(module)
    assert here >= 0, f"{module} has no layer: add it to LAYERS, in the place the design gives it"
    for line, target in imports(ast.parse(path.read_text()), module, path.name == "__init__.py"):
        if not target.startswith("umsh"):
            bare = target.split(".")[0]
            assert bare not in TOP, f"{path}:{line} imports {bare!r}: say umsh.{bare}"
            continue
        there = layer(target)
        if there < 0:  # a name inside a module that was already judged
            continue
        if target == "umsh" and here < layer("umsh"):
            # `from umsh import machine` names a lower module through the package; judged by the next entry.
            continue
        assert there <= here, f"{path}:{line}: {module} (layer {here}) imports {target} (layer {there})"


def test_no_test_or_study_uses_a_bare_name_that_only_a_checkout_has() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{line} {target}"
        for path in tracked()
        if path.suffix == ".py"
        for line, target in imports(ast.parse(path.read_text()), "", False)
        if target.split(".")[0] in TOP
    ]
    assert not bare, "\n".join(bare)


def generated(path: Path) -> bool:
    with path.open(errors="replace") as text:
        return "generated" in text.readline().lower()


def test_files_stay_short_enough_to_be_read_in_one_sitting() -> None:
    long = []
    for path in tracked():
        limit = PYTHON_LINES_MAX if path.suffix in {".py", ".pyi"} else NATIVE_LINES_MAX
        if path.suffix not in NATIVE | {".py", ".pyi"} or generated(path):
            continue
        lines = len(path.read_text(errors="replace").splitlines())
        if lines > limit:
            long.append(f"{path.relative_to(ROOT)}: {lines} > {limit}")
    assert not long, "\n".join(long)


def test_functions_stay_short() -> None:
    long = []
    for path in tracked():
        if path.suffix != ".py" or generated(path):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}")
    assert not long, "\n".join(long)


def test_every_module_says_its_job_in_one_line() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in library_files()
        if not (ast.get_docstring(ast.parse(path.read_text())) or "").strip()
    ]
    assert not silent, f"no module docstring: {silent}"


def test_platform_names_stay_below_the_drivers() -> None:
    """Product names occur only in backends, generated files and prose: code asks for capabilities."""
    names = ("raptor", "arrow", "lunar", "orin", "spark")
    hits = []
    for path in library_files():
        if path.relative_to(ROOT).parts[0] == "backends" or path.name == "paper_rows.py":
            continue  # the paper's statements are about products by name
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in names:
                hits.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r}")
    assert not hits, "\n".join(hits)
