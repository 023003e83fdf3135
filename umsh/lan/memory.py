"""GPU memory of a server: shareable weights counted once, unused ones evicted least recently used first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from umsh.lan.cluster import TaskType


def pinned_mb(types: Mapping[str, TaskType], running: Iterable[str]) -> float:
    """MiB that running tasks hold: private parts of all of them, shareable weights once a type."""
    total, seen = 0.0, set()
    for name in running:
        kind = types[name]
        total += kind.private_mb
        if name not in seen:
            seen.add(name)
            total += kind.shared_mb
    return total


def need_mb(kind: TaskType, type_is_running: bool) -> float:
    """MiB that one more task of the type takes on a server."""
    return kind.private_mb if type_is_running else kind.memory_mb


def evict(
    types: Mapping[str, TaskType], cached: Mapping[str, float], pinned: Iterable[str], excess_mb: float
) -> list[str]:
    """Names of unpinned cached types to drop, least recently used first, until `excess_mb` is freed."""
    held = set(pinned)
    dropped = []
    for name in sorted((name for name in cached if name not in held), key=lambda name: (cached[name], name)):
        if excess_mb <= 0.0:
            break
        dropped.append(name)
        excess_mb -= types[name].shared_mb
    return dropped
