"""Published profiles of task types and servers, with what is assumed named and varied."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from umsh.lan.cluster import Cell, Server, TaskType
from umsh.lan.errors import LanInputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Table 16's prototype shares one upload of 1000 Mb/s; occupancies in table 17 are shares of it.
REFERENCE_MBPS = 1000.0
# Table 5: communication of the inference stage is "around 8 %".
INFER_COMM = 0.08
ROUTER = "router"


@dataclass(frozen=True, slots=True)
class Profiles:
    """Task types and servers of the paper; `assumed` names every value that is not printed."""

    types: dict[str, TaskType]
    servers: tuple[Server, ...]
    assumed: tuple[str, ...]


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(resources.files("umsh.lan").joinpath("profiles.toml").read_text("utf-8"))


def variants() -> tuple[str, ...]:
    """Names of the other readings of the assumed cells."""
    return tuple(_tables()["variants"])


def load_profiles(variant: str | None = None) -> Profiles:
    """Read the committed tables; `variant` replaces the assumed cells by another reading.

    Raises LanInputError for an unknown variant.
    """
    tables = _tables()
    changed: dict[str, list[float]] = {}
    if variant is not None:
        if variant not in tables["variants"]:
            raise LanInputError(
                f"there is no profile variant {variant!r}.",
                "Nothing was loaded.",
                f"Known: {list(variants())}.",
            )
        changed = tables["variants"][variant]
    marked = set(tables["assumed"]["cells"])
    types = {name: _task_type(name, row, changed, marked) for name, row in tables["types"].items()}
    servers = tuple(
        Server(name, row["gpu"], row["memory_mb"], (ROUTER,)) for name, row in tables["servers"].items()
    )
    return Profiles(types, servers, (*tables["assumed"]["cells"], *tables["assumed"]["values"]))


def _task_type(name: str, row: dict[str, Any], changed: dict[str, list[float]], marked: set[str]) -> TaskType:
    cells = {}
    for gpu, printed in row["cells"].items():
        key = f"{name}/{gpu}"
        compute, infer_s = changed.get(key, printed)
        cells[gpu] = Cell(compute, infer_s, "assumed" if key in marked else "published")
    shared = row["cacheable"] * row["weights_mb"]
    uncached_s = (1.0 - row["cacheable"]) * row["load_s"]
    warm_s = row.get("warm_s", uncached_s)
    load_mbps = row["comm"] * REFERENCE_MBPS
    # Spread what the cache does not cover over the warm loading time; beyond it only calls are forwarded.
    warm_mbps = 0.0
    if warm_s > 0.0:
        warm_mbps = max(INFER_COMM * REFERENCE_MBPS, min(load_mbps, load_mbps * uncached_s / warm_s))
    total = row.get("total_mb", row["weights_mb"] + max(256.0, 0.05 * row["weights_mb"]))
    return TaskType(
        name=name,
        load_s=row["load_s"],
        load_mbps=load_mbps,
        shared_mb=shared,
        private_mb=total - shared,
        cells=cells,
        warm_s=warm_s,
        warm_mbps=warm_mbps,
        infer_mbps=INFER_COMM * REFERENCE_MBPS,
    )
