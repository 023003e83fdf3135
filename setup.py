"""Build the native module and map the folders of the checkout onto one import name."""

from setuptools import find_packages, setup

# The checkout shows backends, correctness and microbench at the top; they install below umsh.
TOP = ("backends", "correctness", "microbench")


def packages() -> tuple[list[str], dict[str, str]]:
    names, folders = [], {"umsh": "umsh"}
    names += ["umsh", *(f"umsh.{name}" for name in find_packages("umsh"))]
    for top in TOP:
        folders[f"umsh.{top}"] = top
        names += [f"umsh.{top}", *(f"umsh.{top}.{name}" for name in find_packages(top))]
    return names, folders


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
    },
    cffi_modules=["umsh/native/build.py:ffi"],
)
