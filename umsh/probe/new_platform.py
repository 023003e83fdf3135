"""A first platform file for a machine that none describes, and what is still unknown of it."""

from __future__ import annotations

import re
from pathlib import Path

from umsh.errors import NeedError
from umsh.probe.asked import Asked
from umsh.profile import Scalar

# Facts that name a machine's kind and not one machine, driver build or moment.
TELLING = (
    "device_type", "vendor_id", "integrated", "concurrent_managed_access", "pageable_memory_access",
    "pageable_memory_access_uses_host_page_tables", "compute_capability_major", "compute_capability_minor",
    "drm", "modelled_platform",
)  # fmt: skip
NAME = re.compile(r"[a-z][a-z0-9_]*")
TEMPLATE = '''"""Platform {name}: say here in one line what the machine is and what its caches do."""

from __future__ import annotations

from collections.abc import Mapping

from umsh.machine import Fact, Platform

FACTS: Mapping[str, Fact] = {facts}


def _matches(facts: Mapping[str, Fact]) -> str:
    if any(facts.get(name) != value for name, value in FACTS.items()):
        return ""
    return ", ".join(f"{{name}} is {{value}}" for name, value in FACTS.items())


PLATFORM = Platform(
    name="{name}",
    driver="{driver}",
    matches=_matches,
    safe_mechanisms={safe},  # only what the vendor documents as coherent
    safe_memory={memory},
    safe_lock="peterson",
    safe_wait="block",
    source="the vendor document that guarantees it",
)
'''


def platform_file(name: str, asked: Asked) -> str:
    """The text of backends/<name>.py for the device that was asked."""
    if not NAME.fullmatch(name):
        raise NeedError(
            f"{name!r} cannot name a platform.",
            "Nothing was written.",
            "Use a lower-case word such as 'thor'.",
        )
    kinds = tuple(kind.name for kind in asked.kinds if kind.documented and not kind.absent)
    sure = [kind for kind in asked.kinds if kind.name in kinds]
    how = {kind.name: "copy/copy" if kind.name == "copy" else "WA/RA" for kind in sure}
    safe = tuple(f"{kind.name}.{kind.pages[0]}:{how[kind.name]}" for kind in sure)
    facts: dict[str, Scalar] = {key: asked.facts[key] for key in TELLING if asked.facts.get(key, "") != ""}
    return TEMPLATE.format(
        name=name, driver=asked.driver, facts=facts, safe=safe, memory=tuple(k for k in kinds if k != "copy")
    )


def unknown(asked: Asked) -> list[tuple[str, str]]:
    """(what is not known, which control to look for): step one of the paper's workflow (section 5.1)."""
    here = [kind for kind in asked.kinds if not kind.absent and kind.name != "copy"]
    found = [(f"memory {kind.name}", kind.absent) for kind in asked.kinds if kind.absent]
    if not any(kind.documented for kind in here):
        found.append(("coherent memory", "an allocator whose memory the vendor documents as coherent"))
    if not any(kind.inside for kind in here):
        found.append(("memory for flags", "a vendor's word on visibility and atomics while a kernel runs"))
    if len({kind.gpu_policy for kind in here}) < 2:
        found.append(("GPU cache policy", "a flag or page attribute for uncached GPU accesses"))
    found += [
        (f"cache policy of {kind.name}", "no fact tells it")
        for kind in here
        if "?" in (kind.cpu_policy, kind.gpu_policy)
    ]
    if not any("thp" in kind.pages for kind in here):
        found.append(("large pages", "a way to adopt pages of the library's own (madvise MADV_HUGEPAGE)"))
    for agent, methods in asked.methods.items():
        found += [
            (f"{agent} {name}", reason) for name, reason in methods.items() if reason and name != "copy"
        ]
    found.append(("the vendor's guarantee", "the document for PLATFORM.source"))
    return found


def write(name: str, asked: Asked, folder: Path) -> Path:
    """The file, written where none is yet; NeedError when there is one."""
    path = folder / f"{name}.py"
    text = platform_file(name, asked)
    if path.exists():
        raise NeedError(f"{path} exists.", "It was left as it is.", "Choose another name or folder.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
