"""The installed package: one import name, the same modules as the checkout, no class twice."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUBPACKAGES = ["umsh.backends.driver", "umsh.correctness", "umsh.microbench", "umsh.native", "umsh.probe"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed here, so no wheel can be built")
    out = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source") / "umsh"
    # git's own list of files: a wheel must not depend on what lies around in the checkout.
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.split(b"\0")  # fmt: skip
    for name in filter(None, map(os.fsdecode, names)):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(out),
        ".",
    ]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (built,) = out.glob("umsh-*.whl")
    return built


def test_the_wheel_adds_exactly_one_name(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"umsh"}


def test_the_wheel_imports_from_anywhere_and_brings_its_data(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import json, importlib, pathlib, umsh;"
        f"files=[importlib.import_module(name).__file__ for name in {SUBPACKAGES!r}];"
        "home=pathlib.Path(umsh.__file__).parent;"
        "print(json.dumps([umsh.__file__, *files, (home/'native'/'umsh.h').exists(),"
        "(home/'device'/'umsh.clh').exists(), (home/'py.typed').exists()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "site")],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *files, header, verbs, typed = json.loads(done.stdout)
    assert all(name.startswith(str(tmp_path)) for name in files), files
    assert header
    assert verbs
    assert typed


def test_no_class_exists_twice_after_the_device_suite_was_collected() -> None:
    """`pytest correctness` in a checkout must use umsh.correctness, never a second copy of it."""
    code = (
        "import sys, pytest, inspect;"
        "rc = pytest.main(['-q', '--collect-only', '-p', 'no:cacheprovider', 'correctness', 'microbench']);"
        "seen = {};"
        "twice = [];\n"
        "for name, module in sorted(sys.modules.items()):\n"
        "    path = getattr(module, '__file__', None) or ''\n"
        "    for cls in vars(module).values() if path.startswith(sys.argv[1]) else ():\n"
        "        if inspect.isclass(cls) and cls.__module__ == name:\n"
        "            key = (path, cls.__qualname__)\n"
        "            if key in seen and seen[key] is not cls: twice.append(key)\n"
        "            seen[key] = cls\n"
        "print('TWICE', twice)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert "TWICE []" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


def test_importing_umsh_loads_no_driver_and_no_plotting() -> None:
    code = (
        "import sys, numpy, umsh;"
        "heavy = ['pyopencl', 'numba', 'matplotlib', 'pandas', 'cuda', 'torch', 'msgspec', 'rich', 'typer'];"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_probe_uses_the_installed_package_whatever_lies_in_the_current_folder(tmp_path: Path) -> None:
    """README's first command runs in a checkout, whose bare sources have no native module."""
    (tmp_path / "umsh").mkdir()
    (tmp_path / "umsh" / "__init__.py").write_text("raise ImportError('the bare sources were imported')")
    script = Path(sys.executable).with_name("umsh-probe")
    if not script.exists():
        pytest.skip("umsh-probe is not installed beside this Python")
    done = subprocess.run(
        [script, "facts"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert "bare sources" not in done.stdout + done.stderr
    assert done.returncode in (0, 3), done.stderr  # 3: no device here, which is not this test's matter
