"""The HTML report of a profile and its choice: one self-contained file, with plots."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files
from string import Template

from umsh.choice import Choice
from umsh.probe import plots, sheets, stats
from umsh.probe.evidence import samples_by
from umsh.probe.rank_data import size_text
from umsh.probe.sheets import Sheet, value_text
from umsh.profile import Profile

VERDICTS = ("kept", "broken", "unproven", "absent", "not tested")
CODE_COLUMNS = ("subject", "candidate", "mechanism", "next", "op", "range", "test", "benchmark", "fact")
SHORT_COLUMNS = ("ratio", "p", "median", "quartiles", "parameters")

# benchmark, metric, divisor, axis, fixed parameters, title, what it shows
BARS: tuple[tuple[str, str, float, str, dict[str, object], str, str], ...] = (
    ("zero_copy", "visible", 1e6, "ms until the GPU may read", {"fresh": False},
     "Zero-copy and the copy baseline", "the largest size; grey is the baseline"),
    ("zero_copy", "copies", 1.0, "physical copies of the data", {"fresh": True},
     "Memory it takes", "resident bytes that fresh memory added, over the size of the data"),
    ("file_load", "load", 1e6, "ms", {}, "Cold file into memory", "grey is the baseline"),
    ("file_to_gpu", "time", 1e6, "ms", {}, "Cold file to the GPU", "until a kernel has read and checked it"),
    ("flag", "round_trip", 1.0, "ns", {}, "Flag round trip", "grey is a bare C loop"),
    ("lock", "lock_unlock", 1.0, "ns", {"cpu_threads": 1, "gpu_threads": 1},
     "Lock, one CPU thread against one GPU thread", "per lock and unlock"),
    ("verbs", "call", 1.0, "ns a call", {}, "Verbs from Python", "grey is a bare cffi call"),
)  # fmt: skip


def page(profile: Profile, choice: Choice) -> str:
    """The whole page; it loads nothing from anywhere."""
    template = Template(files("umsh.probe").joinpath("page.html").read_text(encoding="utf-8"))
    quick = '<span class="badge quick">quick: fewer sizes and runs</span>' if profile.quick else ""
    where = f"platform {profile.platform} through {profile.driver}, {profile.made}"
    badge = f'<span class="badge {profile.provenance}">{profile.provenance}</span>{quick}'
    return template.substitute(
        title=escape(f"umsh-probe: {profile.device}"),
        device=escape(profile.device),
        subtitle=f"{escape(where)} {badge}",
        alerts="".join(_alerts(profile)),
        tiles="".join(_tiles(profile)),
        choice=_table(sheets.choice_sheet(choice)) if choice.data or choice.control else _none(),
        verdicts=_verdicts(profile),
        plots="".join(_figures(profile)),
        samples=_details("All medians", "".join(map(_titled, sheets.bench_sheets(profile)))),
        identity=_table(sheets.facts_sheet("", profile.identity))
        + _details("All facts", _table(sheets.facts_sheet("", profile.facts))),
        honest=_honest(profile),
        footer=f"umsh {escape(profile.umsh)}, seed {profile.seed}. Written by umsh-probe report from the "
        f"profile with sha256 {choice.profile_sha256[:16]}.",
    )


def _alerts(profile: Profile) -> Iterator[str]:
    """What a reader must not miss: noise that forbids a choice, broken candidates, modelled figures."""
    if noisy := stats.noise_verdict(profile.noise):
        yield _alert(f"Too noisy to rank mechanisms: {noisy}. The choice below must not be used.")
    if broken := {v.subject for v in profile.verdicts if v.verdict == "broken"}:
        yield _alert(f"Broken here, and never chosen: {', '.join(sorted(broken))}.")
    if profile.provenance == "modelled":
        yield _alert("Every figure on this page comes from a model of this machine, not from the machine.")


def _alert(text: str) -> str:
    return f'<p class="alert">{escape(text)}</p>'


def _tiles(profile: Profile) -> Iterator[str]:
    """A few figures at a glance, each a ratio or median of this very run."""
    counts = {verdict: sum(v.verdict == verdict for v in profile.verdicts) for verdict in VERDICTS[:3]}
    yield _tile(
        f"{counts['kept']} kept", f"litmus results; {counts['broken']} broken, {counts['unproven']} unproven"
    )
    zero = samples_by(profile, "zero_copy", "visible", "nbytes", fresh=False)
    if zero:
        size, samples = max(zero.items())
        medians = {name: stats.median(s) for name, s in samples.items()}
        copies = [m for name, m in medians.items() if name.startswith("copy.")]
        shared = {name: m for name, m in medians.items() if not name.startswith("copy.")}
        if copies and shared:
            best = min(shared, key=lambda name: shared[name])
            ratio = shared[best] / min(copies)
            yield _tile(f"{ratio:.2f} x copy", f"{size_text(size)} until the GPU sees it, {best}")
    for bench, metric, key, what in (
        ("flag", "round_trip", "rounds", "flag round trip CPU, running kernel, CPU"),
        ("verbs", "call", "calls", "one verb from Python, the dearest of {n}"),
    ):
        by = samples_by(profile, bench, metric, key)
        if by:
            last = by[max(by)]
            medians = {n: stats.median(s) for n, s in last.items() if not n.startswith("bare")}
            pick = min(medians.values()) if bench == "flag" else max(medians.values())
            yield _tile(value_text(pick, "ns"), what.format(n=len(medians)))


def _tile(figure: str, says: str) -> str:
    return f'<div class="tile"><b>{escape(figure)}</b><span>{escape(says)}</span></div>'


def _verdicts(profile: Profile) -> str:
    trouble = sheets.trouble_sheet(profile)
    parts = [_table(sheets.kinds_sheet(profile))]
    if trouble.rows:
        parts.append(_titled(trouble))
    return "".join(parts) + _details("Every subject", _table(sheets.matrix_sheet(profile)), "open")


def _figures(profile: Profile) -> Iterator[str]:
    for bench, way in (("cpu_to_gpu", "CPU to GPU"), ("gpu_to_cpu", "GPU to CPU")):
        says = "write, hand over, read and check; plain write and plain read"
        yield _figure(plots.transfer(profile, bench, True), f"{way}: bandwidth", says)
        yield _figure(plots.transfer(profile, bench, False), f"{way}: time of one hand-over", "the same runs")
    for bench, metric, title, says in (
        ("bind", "bind", "Bind", "allocate, make present, verify"),
        ("page_step", "map", "The page step alone", "native, without verification"),
    ):
        yield _figure(plots.against_size(profile, bench, metric), title, says)
    for bench, metric, scale, label, fixed, title, says in BARS:
        yield _figure(plots.bars(profile, bench, metric, scale, label, **fixed), title, says)
    yield _figure(plots.contention(profile), "Many waiters", "whiskers are quartiles; gaps are waived")


def _figure(svg: str, title: str, says: str) -> str:
    if not svg:
        return ""
    return f"<figure><figcaption>{escape(title)}<small>{escape(says)}</small></figcaption>{svg}</figure>"


def _honest(profile: Profile) -> str:
    noise, waived = sheets.noise_sheet(profile), sheets.waived_sheet(profile)
    verdict = stats.noise_verdict(profile.noise) or "quiet enough to rank mechanisms"
    parts = [f"<p>Noise: {escape(verdict)}.</p>", _table(noise)]
    if waived.rows:
        parts.append(_titled(waived))
    return "".join(parts)


def _none() -> str:
    return _alert("No mechanism is both kept and timed; the safe defaults stay in force.")


def _titled(sheet: Sheet) -> str:
    return f"<h3>{escape(sheet.title)}</h3>{_table(sheet)}"


def _details(title: str, body: str, state: str = "") -> str:
    return f"<details {state}><summary>{escape(title)}</summary>{body}</details>"


def _table(sheet: Sheet) -> str:
    """The sheet as a table; evidence beside many narrow columns would be narrower still, so it goes below."""
    below = sheet.columns[-1] == "evidence" and len(sheet.columns) > 4
    columns = sheet.columns[:-1] if below else sheet.columns
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(_row(columns, row, below) for row in sheet.rows)
    note = f'<p class="note">{escape(sheet.note)}</p>' if sheet.note else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}'
    )


def _row(columns: tuple[str, ...], row: tuple[str, ...], below: bool) -> str:
    cells = "".join(_cell(c, cell) for c, cell in zip(columns, row, strict=not below))
    if not below:
        return f"<tr>{cells}</tr>"
    why = f'<tr><td class="why" colspan="{len(columns)}">{escape(row[-1])}</td></tr>'
    return f'<tr class="open">{cells}</tr>{why}'


def _cell(column: str, text: str) -> str:
    first = text.split(" ", maxsplit=1)[0]
    if first in ("kept", "broken", "unproven", "absent", "not") and text.startswith(VERDICTS):
        return f'<td><span class="v {first}">{escape(text)}</span></td>'
    kind = "code" if column in CODE_COLUMNS else "short" if column in SHORT_COLUMNS else ""
    return f'<td class="{kind}">{escape(text)}</td>'
