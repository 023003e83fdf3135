"""Explain: which choice is in force, why this mechanism, what the runner-up was and what backs the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umsh.control import Flag, Lock
from umsh.errors import NeedError
from umsh.region import Region
from umsh.resolve import SAFE_DEFAULT, InForce, in_force

if TYPE_CHECKING:
    from umsh.choice import ControlRow, DataRow
    from umsh.mechanism import Backing
    from umsh.resolve import Resolved, ResolvedControl

Facts = list[tuple[str, str]]
# Backing.source of pages that are not ours to look at.
UNVERIFIED = {
    "driver": "pages chosen by the driver, not verified",
    "adopted": "pages of the adopted memory, not verified",
}


@dataclass(frozen=True)
class Explanation:
    """What explain() found. facts: (heading, text) lines; columns and rows: the choice's table.

    str() is the text for a terminal; to_dict() the same content for programs.
    """

    facts: Facts
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """{"facts": {heading: text or [texts]}, "rows": [{column: cell}]}."""
        facts: dict[str, Any] = {}
        for heading, text in self.facts:
            if heading == "note":
                facts.setdefault("note", []).append(text)
            else:
                facts[heading] = text
        return {"facts": facts, "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows]}

    def __str__(self) -> str:
        width = max(len(heading) for heading, _ in self.facts)
        lines = [f"{heading:<{width}}  {text}" for heading, text in self.facts]
        if self.rows:
            table = [self.columns, *self.rows]
            widths = [max(len(row[i]) for row in table) for i in range(len(self.columns))]
            cells = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in table)
            lines += ["", *(line.rstrip() for line in cells)]
        return "\n".join(lines)


def explain(what: Region | Flag | Lock | None, device: int | str = 0) -> Explanation:
    """The explanation of a region, flag or lock; of None that of the choice in force on `device`."""
    if what is None:
        return _explain_choice(device)
    if isinstance(what, Region):
        return _explain_region(what)
    if isinstance(what, (Flag, Lock)):
        why = what._why
        method = f"{why.method} on {why.memory} memory"
        facts = [
            ("effective", method),
            ("chosen by", why.origin),
            *_row_facts(why),
            *_force_facts(why.in_force),
        ]
        return Explanation([*facts, *_notes(why.notes)])
    raise NeedError(
        f"{type(what).__name__} cannot be explained.", "", "Give a region, flag, lock or nothing."
    )


def _explain_region(region: Region) -> Explanation:
    region._check_open()
    need, why = region.requested, region._why
    asked = f"{need.direction} from {need.source}, boundary {need.boundary}, {need.nbytes} B, "
    asked += f"passes {need.passes}"
    facts = [
        ("requested", asked),
        ("effective", region.effective.name),
        ("chosen by", why.origin),
        *(_row_facts(why) if why.row is None or region.effective.name == why.row.mechanism else ()),
        ("backing", _backing(region._keeper.memory.backing)),
        *_force_facts(why.in_force),
    ]
    return Explanation([*facts, *_notes(why.notes)])


def _explain_choice(device: int | str) -> Explanation:
    from umsh.backends import open_device
    from umsh.possible import safe_controls, safe_mechanisms

    opened = open_device(device)
    force = in_force(opened)
    facts = [("device", f"{opened.name} ({opened.driver}:{opened.index})"), *_force_facts(force)]
    columns = ("op", "range", "mechanism", "next", "ratio", "evidence")
    if force.choice is not None:
        rows = [*map(_data_cells, force.choice.data), *map(_control_cells, force.choice.control)]
        return Explanation(facts, columns, tuple(rows))
    from umsh.need import Need

    lines = []
    for boundary in ("kernel", "inside"):
        safe = safe_mechanisms(opened, Need("both", "cpu", boundary, 1), force.platform)
        name = safe[0].name if safe else "-"
        lines.append((f"any {boundary}", "any", name, safe[1].name if len(safe) > 1 else "-", "-", "vendor"))
    for pattern in ("wait", "lock"):
        pairs = safe_controls(opened, pattern, force.platform)
        text = f"{pairs[0][1]} on {pairs[0][0]}" if pairs else "-"
        lines.append((pattern, "any", text, "-", "-", "vendor"))
    return Explanation(facts, columns, tuple(lines))


def _force_facts(force: InForce) -> Facts:
    platform = force.platform.name if force.platform else "unknown"
    facts = [("platform", f"{platform}: {force.platform_evidence}")]
    if force.choice is None:
        source = force.platform.source if force.platform else "the driver's memory kinds"
        facts.append(("choice", f"none; safe defaults guaranteed by {source}"))
    else:
        choice = force.choice
        facts.append(("choice", f"{force.origin}: {force.path}"))
        told = f"{choice.provenance} on {choice.device}, {choice.driver_version}"
        if choice.provenance == "documented" and force.platform:
            told = f"documented by the vendor, not measured: {force.platform.source}"
        facts.append(("provenance", told))
        facts.append(("profile", f"{choice.profile}, sha256 {choice.profile_sha256[:12]}"))
    return [*facts, *_notes(force.notes)]


def _row_facts(why: Resolved | ResolvedControl) -> Facts:
    row = why.row
    if row is None:
        return [("row", "no row of a choice covers this")] if why.origin == SAFE_DEFAULT else []
    facts = [("runner-up", f"{row.next}, {_ratio(row.ratio, row.p)}" if row.next else "none kept")]
    return [*facts, ("evidence", row.evidence)]


def _backing(backing: Backing) -> str:
    if backing.source in UNVERIFIED:
        return UNVERIFIED[backing.source]
    return (
        f"{backing.requested}: {backing.huge_bytes} of {backing.total_bytes} B on large pages"
        f" (by {backing.source})"
    )


def _data_cells(row: DataRow) -> tuple[str, ...]:
    op = f"{row.direction} {row.source} {row.boundary}"
    if row.min_passes > 1:
        op += f" passes>={row.min_passes}"
    ratio = _ratio(row.ratio, row.p) if row.next else "only kept"
    return (
        op,
        _range(row.min_bytes, row.max_bytes, " B"),
        row.mechanism,
        row.next or "-",
        ratio,
        row.evidence,
    )


def _control_cells(row: ControlRow) -> tuple[str, ...]:
    threads = _range(row.min_threads, row.max_threads, " threads")
    ratio = _ratio(row.ratio, row.p) if row.next else "only kept"
    return (row.pattern, threads, f"{row.method} on {row.memory}", row.next or "-", ratio, row.evidence)


def _range(low: int, high: int, unit: str) -> str:
    return f"{low}..{high or 'inf'}{unit}"


def _ratio(ratio: float, p: float) -> str:
    return f"{ratio:.2f}x  p {p:.2g}" if (ratio, p) != (1.0, 1.0) else "not measured"


def _notes(notes: tuple[str, ...]) -> Facts:
    return [("note", note) for note in notes]
