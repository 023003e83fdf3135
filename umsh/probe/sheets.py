"""What tables show: titled rows of text from a profile and a choice, the same for terminal, JSON and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from umsh.choice import Choice, ControlRow, DataRow
from umsh.mechanism import Mechanism, MemoryKind
from umsh.need import SOURCES
from umsh.probe import stats
from umsh.probe.evidence import BOTH_WAYS, standing
from umsh.probe.rank_data import size_text
from umsh.profile import Profile, SampleRecord, Scalar, VerdictRecord


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table: a title with its unit where one holds for all, columns, rows of text, and a note."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "note": self.note}


def facts_sheet(title: str, facts: Mapping[str, Scalar]) -> Sheet:
    """Name and value of each fact."""
    return Sheet(title, ("fact", "value"), tuple((name, str(value)) for name, value in facts.items()))


def memories_sheet(kinds: Iterable[MemoryKind]) -> Sheet:
    """What is known of each memory kind before any test; absent ones with the missing fact."""
    rows = tuple(
        (
            kind.name, " ".join(kind.pages), f"{kind.cpu_policy} / {kind.gpu_policy}", kind.coherence,
            "yes" if kind.documented else "no", "yes" if kind.inside else "no",
            f"absent: {kind.absent}" if kind.absent else kind.note,
        )
        for kind in kinds
    )  # fmt: skip
    return Sheet(
        "Memory kinds",
        ("memory", "pages", "CPU/GPU policy", "coherence", "documented", "inside", "note or missing fact"),
        rows,
        "policy: of each agent's mapping. coherence: what the hardware keeps. documented, inside: the vendor "
        "guarantees visibility at kernel boundaries, and while a kernel runs.",
    )


def methods_sheet(methods: Mapping[str, Mapping[str, str]]) -> Sheet:
    """The write and read methods of each agent; absent ones with the missing fact."""
    rows = tuple(
        (agent, method, f"absent: {missing}" if missing else "present")
        for agent, own in methods.items()
        for method, missing in own.items()
    )
    return Sheet("Methods", ("agent", "method", "present or missing fact"), rows)


def kinds_sheet(profile: Profile) -> Sheet:
    """One row a memory kind: verdict, its kept method pairs, evidence or the missing fact."""
    rows = []
    by_kind: dict[str, list[str]] = {}
    absent: dict[str, str] = {}
    for record in profile.mechanisms:
        mechanism = Mechanism.parse(record.name)
        by_kind.setdefault(mechanism.memory, []).append(mechanism.sharing)
        absent.setdefault(mechanism.memory, record.absent)
    for kind, sharings in by_kind.items():
        names = list(dict.fromkeys(sharings))
        states = {name: standing(profile.verdicts, name) for name in names}
        kept = [name for name in names if states[name].verdict == "kept"]
        worst = min(states.values(), key=lambda s: ("broken", "unproven", "kept", "absent").index(s.verdict))
        if absent[kind]:
            rows.append(("-", kind, "absent", absent[kind]))
        elif len(kept) == len([s for s in states.values() if s.verdict != "absent"]) and kept:
            tests = sum(states[name].tests for name in kept)
            bound = max(states[name].bound for name in kept)
            caught, mutants = _mutants(profile.verdicts, names)
            rows.append(
                ("+", kind, "kept", f"{len(kept)} method pairs, {tests} litmus results, forbidden rate <= "
                 f"{bound:.1g}; {caught} of {mutants} mutants caught")
            )  # fmt: skip
        else:
            rows.append(("-", kind, worst.verdict, f"{worst.reason}; {len(kept)} method pairs kept"))
    return Sheet("Memory kinds", ("", "memory", "verdict", "evidence"), tuple(rows))


def _mutants(verdicts: Iterable[VerdictRecord], subjects: Sequence[str]) -> tuple[int, int]:
    results = [result for v in verdicts if v.subject in subjects for result in v.mutants.values()]
    told = [result for result in results if result in ("caught", "missed")]
    return told.count("caught"), len(told)


def matrix_sheet(profile: Profile) -> Sheet:
    """Verdict of each subject in each way and boundary, with the runs behind it."""
    columns = [(way, boundary) for way in BOTH_WAYS for boundary in ("kernel", "inside")]
    rows = []
    for subject in dict.fromkeys(v.subject for v in profile.verdicts):
        whole = standing(profile.verdicts, subject)
        if whole.tests:
            cells = [_cell(profile, subject, way, boundary) for way, boundary in columns]
            rows.append((subject, f"{whole.runs:,}", *cells, f"{whole.bound:.1g}"))
    heads = (f"{way} {boundary}" for way, boundary in columns)
    return Sheet(
        "Verdicts (number of litmus results)", ("subject", "runs", *heads, "rate <="), tuple(rows),
        "rate: 0 forbidden outcomes in n runs bound the rate of forbidden ones by 3/n (95 %), per test. "
        "Subjects of which no test could run are left out.",
    )  # fmt: skip


def _cell(profile: Profile, subject: str, way: str, boundary: str) -> str:
    state = standing(profile.verdicts, subject, boundary, (way,))
    if state.tests:
        return f"{state.verdict} ({state.tests})"
    return "absent" if state.verdict == "absent" else "not tested"


def trouble_sheet(profile: Profile) -> Sheet:
    """Every verdict that is neither kept nor absent, with what to repeat it by."""
    rows = tuple(
        (v.test, v.subject, v.direction, v.verdict, f"{v.reason} (seed {v.seed}, n {v.n})")
        for v in profile.verdicts
        if v.verdict in ("broken", "unproven")
    )
    return Sheet("Not kept", ("test", "subject", "direction", "verdict", "reason"), rows)


def bench_sheets(profile: Profile) -> list[Sheet]:
    """One sheet a benchmark and metric: median, quartiles, ratio to the best of the same parameters."""
    groups: dict[tuple[str, str], list[SampleRecord]] = {}
    for record in profile.samples:
        if record.samples and not record.parameters.get("twin"):
            groups.setdefault((record.bench, str(record.parameters["metric"])), []).append(record)
    sheets = []
    for (bench, metric), records in groups.items():
        sheets.append(
            Sheet(
                f"{bench}: {metric} [{'time' if records[0].unit == 'ns' else records[0].unit}]",
                ("parameters", "candidate", "median", "quartiles", "n", "x best", "note"),
                tuple(_bench_row(record, records) for record in records),
            )
        )
    return sheets


def _bench_row(record: SampleRecord, records: Sequence[SampleRecord]) -> tuple[str, ...]:
    def parameters(one: SampleRecord) -> str:
        return "  ".join(
            size_text(int(value)) if name == "nbytes" else f"{name} {value}"
            for name, value in one.parameters.items()
            if name not in ("metric", "twin")
        )

    mine, here = stats.summarise(record.samples), parameters(record)
    best = min(stats.median(r.samples) for r in records if parameters(r) == here)
    ratio = f"{mine.median / best:.2f}" if best > 0 else "-"
    notes = (record.note, "baseline" if record.baseline_of else "", "" if record.verified else "DATA WRONG")
    low, high = value_text(mine.low, record.unit), value_text(mine.high, record.unit)
    return (
        here, record.subject, value_text(mine.median, record.unit), f"{low} .. {high}", str(mine.n), ratio,
        "; ".join(filter(None, notes)),
    )  # fmt: skip


def waived_sheet(profile: Profile) -> Sheet:
    """What was not measured, with the missing fact."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for r in profile.samples:
        if r.note.startswith("WAIVED"):
            place = " ".join(f"{k} {v}" for k, v in r.parameters.items() if k != "metric")
            rows.setdefault((r.bench, r.subject, r.note.removeprefix("WAIVED: ")), []).append(place)
    return Sheet(
        "Waived", ("benchmark", "candidate", "missing fact", "points"),
        tuple((bench, who, why, str(len(places))) for (bench, who, why), places in rows.items()),
    )  # fmt: skip


def noise_sheet(profile: Profile) -> Sheet:
    """How noisy the machine was."""
    rows = [
        (name, f"{value:.0f}" if name.startswith("twins") else f"{value:.1%}")
        for name, value in profile.noise.items()
    ]
    return Sheet(
        "Noise", ("what", "value"), tuple(rows),
        "twins: groups in which one candidate was measured twice; twins_differ: pairs that the ranking's own "
        "test told apart. spread: typical interquartile range over the median.",
    )  # fmt: skip


def choice_sheet(choice: Choice) -> Sheet:
    """Every row of a choice; rows that differ in the source only are one."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for row in choice.data:
        merged.setdefault(_data_cells(row), []).append(row.source)
    rows = [(f"{cells[0]}{_sources(sources)}", *cells[1:]) for cells, sources in merged.items()]
    rows += [_control_cells(row) for row in choice.control]
    return Sheet(
        "Choice", ("op", "range", "mechanism", "next", "ratio", "p", "evidence"), tuple(rows),
        "ratio: median of next over that of the mechanism, where it is smallest in the range. "
        f"Below {1 + stats.EFFECT_MIN:.2f}, or with p >= {stats.ALPHA:g}, no difference is proven "
        "and the simpler stays. rate: bound of forbidden outcomes, 3/n.",
    )  # fmt: skip


def _data_cells(row: DataRow) -> tuple[str, ...]:
    passes = f" passes >= {row.min_passes}" if row.min_passes > 1 else ""
    upper = size_text(row.max_bytes + 1) if row.max_bytes else "inf"
    lower = size_text(row.min_bytes) if row.min_bytes > 1 else "0"
    return (
        f"{row.direction} {row.boundary}{passes}", f"{lower} .. {upper}", row.mechanism, row.next or "-",
        *_ratio(row.next, row.ratio, row.p), row.evidence,
    )  # fmt: skip


def _control_cells(row: ControlRow) -> tuple[str, ...]:
    upper = str(row.max_threads) if row.max_threads else "inf"
    what = "pollers" if row.pattern == "wait" else "GPU threads"
    return (
        row.pattern, f"{row.min_threads} .. {upper} {what}", f"{row.method} on {row.memory}", row.next or "-",
        *_ratio(row.next, row.ratio, row.p), row.evidence,
    )  # fmt: skip


def _sources(sources: Sequence[str]) -> str:
    missing = [source for source in SOURCES if source not in sources]
    if not missing:
        return ""
    return f" but {missing[0]}" if len(missing) == 1 else f" from {', '.join(sources)}"


def _ratio(runner_up: str, ratio: float, p: float) -> tuple[str, str]:
    return (f"{ratio:.2f}", f"{p:.2g}") if runner_up else ("only kept", "-")


def value_text(value: float, unit: str) -> str:
    """A value with three digits in a unit that people read."""
    if unit == "ns":
        steps = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
    elif unit in ("B", "B/s"):
        tail = unit[1:]
        steps = ((1e9, "GB" + tail), (1e6, "MB" + tail), (1e3, "kB" + tail), (1.0, "B" + tail))
    else:
        return f"{value:.3g}"
    for scale, name in steps:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value:.3g} {steps[-1][1]}"
