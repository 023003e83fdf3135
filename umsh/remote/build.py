"""Compile the native parts of remoting: `python -m umsh.remote.build [--sanitize KIND] [--output DIR]`.

Also run by setup.py, before the package can be imported: this file uses the standard library only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE / "native"
COMMON = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", f"-I{NATIVE}")
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "undefined": ("-fsanitize=undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread",),
}


@dataclass(frozen=True)
class Target:
    """One library or program: its sources as patterns below native/, and what it links."""

    path: str
    sources: tuple[str, ...]
    link: tuple[str, ...] = ()
    uses: str = ""  # a target that it links
    exports: str = ""  # version script: nothing else is visible, whatever libstdc++ brings
    node: str = ""  # name of the symbols' version

    @property
    def shared(self) -> bool:
        return ".so" in self.path


WIRE = "wire/*.cpp"
TARGETS = (
    Target("lib/libcuda.so.1", ("client/*.cpp", WIRE, "generated/client_driver*.cpp"), ("-ldl", "-lpthread"),
           exports='cu*; extern "C++" { umsh::*; };'),
    Target("lib/libnvidia-ml.so.1", ("nvml/*.cpp", "client/log.cpp", "generated/client_nvml*.cpp"),
           ("-Wl,-rpath,$ORIGIN",), "lib/libcuda.so.1", "nvml*;"),
    Target("lib/libumsh-software.so", ("software/*.cpp",), ("-ldl", "-lpthread"), exports="cu*; nvml*;"),
    Target("lib/libcudart.so.13", ("cudart/*.cpp", "generated/cudart_*.cpp"), ("-ldl", "-lpthread"),
           exports="cuda*; __cuda*;", node="libcudart.so.13"),
    Target("bin/umsh-session", ("server/*.cpp", WIRE, "generated/serve_*.cpp", "generated/dispatch.cpp",
                                "generated/structs.cpp"), ("-ldl", "-lpthread")),
)  # fmt: skip


class BuildError(RuntimeError):
    """A compiler or linker refused, with what it said."""


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr[-4000:]}")


def headers_newest() -> float:
    found = [p.stat().st_mtime for kind in ("*.h", "*.inc") for p in NATIVE.rglob(kind)]
    return max(found, default=0.0)


def compile_one(source: Path, objects: Path, flags: tuple[str, ...], newest: float) -> Path:
    out = objects / (str(source.relative_to(NATIVE)).replace("/", "_") + ".o")
    if out.exists() and out.stat().st_mtime > max(newest, source.stat().st_mtime):
        return out
    # A newer compiler may warn of more: only our own checks stop at a warning.
    strict = ("-Werror",) if os.environ.get("CI") else ()
    optimize = "-O1" if source.parent.name == "generated" else "-O2"
    run([compiler(), *COMMON, *strict, optimize, *flags, "-c", str(source), "-o", str(out)])
    return out


def compiler() -> str:
    return os.environ.get("CXX", "g++")


def link(target: Target, objects: list[Path], output: Path, flags: tuple[str, ...]) -> Path:
    out = output / target.path
    out.parent.mkdir(parents=True, exist_ok=True)
    made = out.with_name(out.name + ".new")
    command = [compiler(), *flags, "-o", str(made), *map(str, objects)]
    if not any(flag.startswith("-fsanitize") for flag in flags):
        # The program may bring a newer libstdc++ than the system's: this library must not load one before it.
        command += ["-static-libstdc++", "-static-libgcc", "-s"]
        command += ["-Wl,-z,defs"] if target.shared else []
    if target.shared:
        command += ["-shared", f"-Wl,-soname,{out.name}"]
    if target.exports:
        script = output / "objects" / f"{out.name}.map"
        script.write_text(f"{target.node} {{ global: {target.exports} local: *; }};\n")
        command.append(f"-Wl,--version-script={script}")
    command += [str(output / target.uses)] if target.uses else []
    run([*command, *target.link])
    made.replace(out)
    return out


def sources_of(target: Target) -> list[Path]:
    return sorted(p for pattern in target.sources for p in NATIVE.glob(pattern))


def build(output: Path = HERE, sanitize: str = "") -> list[Path]:
    """Compile and link every target; `output` gets lib/, bin/ and objects/. Returns what was made.

    Incremental by time stamps. BuildError when a compiler or linker refuses.
    """
    flags = (*SANITIZERS[sanitize], "-g") if sanitize else ()
    objects = output / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    wanted = {target: sources_of(target) for target in TARGETS}
    sources = sorted({s for listed in wanted.values() for s in listed}, key=lambda p: -p.stat().st_size)
    newest = headers_newest()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        compiled = {s: pool.submit(compile_one, s, objects, flags, newest) for s in sources}
    return [link(t, [compiled[s].result() for s in listed], output, flags) for t, listed in wanted.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, default=HERE, help="gets lib/ and bin/ (default: the package)")
    parser.add_argument(
        "--sanitize", choices=sorted(SANITIZERS), default="", help="a build that checks itself"
    )
    asked = parser.parse_args()
    try:
        for path in build(asked.output, asked.sanitize):
            print(path)
    except (BuildError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
