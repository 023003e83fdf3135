"""Which files a path means: one file, the shards of an index, the splits of a GGUF, or a folder of these."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from umsh.errors import FileError

INDEX_SUFFIX = ".index.json"
INDEX_BYTES_MAX = 100_000_000
SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
MODELS = ("*.index.json", "*.safetensors", "*.gguf")


def files_of(path: Path) -> Mapping[Path, tuple[str, ...] | None]:
    """File -> the tensor names an index says are in it, None where nobody says. FileError."""
    if path.is_dir():
        path = _only_model(path)
    if path.name.endswith(INDEX_SUFFIX):
        return _index(path)
    if split := SPLIT.fullmatch(path.name):
        count = int(split["count"])
        names = [f"{split['stem']}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)]
        if path.name in names:  # else the numbers mean something else
            return dict.fromkeys(_present(path, names))
    return {path: None}


def _only_model(folder: Path) -> Path:
    """The one model of a folder: its index, else its only weight file."""
    for pattern in MODELS:
        found = sorted(folder.glob(pattern))
        if found and (len(found) == 1 or SPLIT.fullmatch(found[0].name)):
            return found[0]
        if found:
            names = ", ".join(p.name for p in found[:5])
            raise FileError(
                f"{str(folder)!r} holds {len(found)} candidates: {names}.",
                "Nothing was loaded.",
                "Name one of them.",
            )
    raise FileError(
        f"{str(folder)!r} holds no {', '.join(MODELS)}.", "Nothing was loaded.", "Name the file itself."
    )


def _index(path: Path) -> Mapping[Path, tuple[str, ...] | None]:
    if path.stat().st_size > INDEX_BYTES_MAX:
        raise _bad_index(path, f"it is larger than {INDEX_BYTES_MAX} bytes")
    try:
        said = json.loads(path.read_bytes())
        weight_map = said["weight_map"]
        pairs = [(str(name), str(file)) for name, file in weight_map.items()]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise _bad_index(path, f"it has no readable weight_map ({type(error).__name__})") from error
    by_file: dict[str, list[str]] = {}
    for name, file in pairs:
        if Path(file).name != file or file in ("", ".", ".."):
            raise _bad_index(path, f"it sends {name!r} to {file!r}, which is no file beside it")
        by_file.setdefault(file, []).append(name)
    found = _present(path, list(by_file))
    return {shard: tuple(names) for shard, names in zip(found, by_file.values(), strict=True)}


def _present(path: Path, names: list[str]) -> list[Path]:
    """The files of these names beside `path`; FileError naming those that are missing."""
    found = [path.with_name(name) for name in names]
    if missing := [shard.name for shard in found if not shard.is_file()]:
        raise FileError(
            f"{len(missing)} of {len(found)} shards of {str(path)!r} are missing: {', '.join(missing[:5])}.",
            "Nothing was loaded.",
            "Fetch the missing files into the same folder.",
        )
    return found


def _bad_index(path: Path, what: str) -> FileError:
    return FileError(
        f"The index {str(path)!r} cannot be used: {what}.", "Nothing was loaded.", "Fetch it again."
    )
