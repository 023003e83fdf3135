"""Build the native module and remoting's parts; map the folders of the checkout onto one import name."""

import runpy
import shutil
import sys

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

# The checkout shows backends, correctness and microbench at the top; they install below umsh.
TOP = ("backends", "correctness", "microbench")


def packages() -> tuple[list[str], dict[str, str]]:
    names, folders = [], {"umsh": "umsh"}
    names += ["umsh", *(f"umsh.{name}" for name in find_packages("umsh"))]
    for top in TOP:
        folders[f"umsh.{top}"] = top
        names += [f"umsh.{top}", *(f"umsh.{top}.{name}" for name in find_packages(top))]
    return names, folders


class BuildPy(build_py):
    """Remoting's libraries and programs are compiled into the package before its files are collected."""

    def run(self) -> None:
        if sys.platform != "linux" or shutil.which("g++") is None:
            print(
                "umsh.remote is installed without its native parts: they need Linux and g++", file=sys.stderr
            )
        else:
            runpy.run_path("umsh/remote/build.py", run_name="umsh_remote_build")["build"]()
            self.data_files = self._get_data_files()
        super().run()


NAMES, FOLDERS = packages()
setup(
    packages=NAMES,
    package_dir=FOLDERS,
    package_data={
        "umsh": ["py.typed"],
        "umsh.native": ["*.h", "*.c", "*.pyi"],
        "umsh.device": ["*.h", "*.clh", "*.cuh"],
        "umsh.probe": ["*.html"],
        "umsh.backends": ["machines/*.toml", "choices/*.toml"],
        "umsh.backends.model": ["*.toml"],
        "umsh.backends.opencl": ["*.cl"],
        "umsh.backends.cuda": ["*.cu"],
        "umsh.microbench": ["results/*/*"],
        "umsh.lan": ["*.toml", "results/*"],
        "umsh.remote": ["lib/*", "bin/*", "tables/*"],
    },
    cmdclass={"build_py": BuildPy},
    cffi_modules=["umsh/native/build.py:ffi"],
)
