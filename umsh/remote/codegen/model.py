"""The calls as the generator sees them: prototypes joined with what the tables say of each parameter."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[1] / "tables"


class TableError(ValueError):
    """The tables do not describe a call well enough to generate it."""


REPLIES = frozenset(
    ["out", "inout", "inoutarray", "versioned", "count", "intern", "outarray", "outhandles", "outtext"]
)


@dataclass(frozen=True)
class Parameter:
    """One parameter: its C type at ABI level, its role on the wire and what the role needs."""

    name: str
    c_type: str
    role: str
    element: str = ""  # C type of what a pointer points to; "" for a struct
    size: int = 0  # bytes of one element
    length: str = (
        ""  # parameter with the number of elements, "*p" through a pointer, a number, "@C++ expression"
    )
    kind: str = ""  # kind of a handle
    struct: str = ""  # struct whose handles and pointers need translation

    @property
    def has_reply(self) -> bool:
        return self.role in REPLIES


@dataclass
class Call:
    """One exported function: how it travels and who writes each end."""

    name: str
    library: str
    public: str  # the name that programs write
    current: bool  # declared by the header without asking for older versions
    parameters: list[Parameter] = field(default_factory=list)
    types: list[str] = field(default_factory=list)  # C types of its parameters at ABI level
    travels: str = "sync"  # local cached async prefetch sync
    client: str = "generated"  # generated, hand, none
    server: str = "generated"  # generated, hand, none
    blocking: bool = False
    changes_card: bool = False  # NVML: refused unless the server allows it
    alias: str = ""  # the function that this older name stands for
    check: str = ""  # C++ expression that gives an error code for inputs that the server refuses
    unsupported: str = ""  # reason
    op: int = 0

    @property
    def has_reply(self) -> bool:
        return any(p.has_reply for p in self.parameters)


def prototypes() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((TABLES / "prototypes.json").read_text())
    return loaded
