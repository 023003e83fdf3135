"""What the subcommands of `umsh-probe` do: run a part of the probe, show its sheets, give the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from umsh import choice as choices
from umsh import profile as profiles
from umsh.choice import Choice
from umsh.cli import BROKEN, NOISY, NOTHING, STANDS
from umsh.probe import generate, sheets
from umsh.probe.asked import Asked
from umsh.probe.child import Child
from umsh.probe.force import Force
from umsh.probe.run import CHOICE, PROFILE, Probe, Settings, ask, force
from umsh.probe.sheets import Sheet
from umsh.probe.show import duration, facts_console, progress, show, write_json
from umsh.profile import Profile, VerdictRecord

REPORT = "report.html"


@contextmanager
def _probe(settings: Settings) -> Iterator[Probe]:
    with progress() as tell, Probe(settings, tell) as probe:
        _say_device(probe.asked)
        if probe.resumed:
            facts_console.print(f"resumed   {probe.resumed} steps of an interrupted probe are kept")
        yield probe


def _ask(settings: Settings) -> Asked:
    with Child() as child:
        asked = ask(settings, child)
    _say_device(asked)
    return asked


def _say_device(asked: Asked) -> None:
    facts_console.print(f"platform  {asked.platform}  driver {asked.driver}  device {asked.device}")


def everything(settings: Settings, json: Path | None) -> int:
    """The whole probe: profile, choice, explanation. 0, 1, 3 or 4."""
    with _probe(settings) as probe:
        facts_console.print(f"takes     about {duration(probe.expected_s)}")
        profile = probe.run()
        if not any(record.samples for record in profile.samples):
            _tell("Nothing could be measured: every benchmark was waived.", [sheets.waived_sheet(profile)])
            return NOTHING
        choice, noisy = probe.write(profile)
    now = force(settings) if settings.output is None else None
    for sheet in (sheets.facts_sheet("Identity", profile.identity), sheets.noise_sheet(profile)):
        show(sheet, facts_console)
    tables = [sheets.kinds_sheet(profile), sheets.trouble_sheet(profile)]
    if choice is not None:
        tables.append(sheets.choice_sheet(choice))
    for sheet in tables:
        show(sheet)
    if json is not None:
        write_json(json, [*_all(profile), *tables], profile=str(probe.folder / PROFILE), noise=noisy)
    broken = [] if now is None else _broken(profile.verdicts, now)
    for verdict in broken:
        _tell(f"BROKEN in force: {verdict.subject} {verdict.direction}: {verdict.test}, {verdict.reason}")
    if noisy:
        stays = "" if broken else "; what was in force stays"
        _tell(
            f"Too noisy to rank mechanisms: {noisy}. No choice was written{stays}. "
            f"Close other work and run it again. The samples are in {probe.folder / PROFILE}."
        )
        return BROKEN if broken else NOISY
    if settings.output is not None:
        _tell(f"To use this choice: UMSH_CHOICE={probe.folder / CHOICE}")
    print(probe.folder / CHOICE)
    return BROKEN if broken else STANDS


def facts(settings: Settings, json: Path | None) -> int:
    """Facts only."""
    asked = _ask(settings)
    tables = [
        sheets.facts_sheet("Identity", asked.identity),
        sheets.facts_sheet("Facts", asked.facts),
        sheets.memories_sheet(asked.kinds),
        sheets.methods_sheet(asked.methods),
    ]
    return _show(tables, json)


def check(settings: Settings, json: Path | None) -> int:
    """Verdicts only; 1 when something in force is broken."""
    with _probe(settings) as probe:
        profile = probe.run()
        probe.finished = True
    tables = [sheets.kinds_sheet(profile), sheets.matrix_sheet(profile), sheets.trouble_sheet(profile)]
    _show(tables, json)
    return BROKEN if _broken(profile.verdicts, force(settings)) else STANDS


def bench(settings: Settings, json: Path | None) -> int:
    """Benchmarks only."""
    with _probe(settings) as probe:
        profile = probe.run()
        probe.finished = True
    _show([*sheets.bench_sheets(profile), sheets.waived_sheet(profile), sheets.noise_sheet(profile)], json)
    return STANDS if any(record.samples for record in profile.samples) else NOTHING


def choose(settings: Settings, path: Path | None, json: Path | None) -> int:
    """The choice of a profile, generated anew and written beside it or to the output folder."""
    profile, found = _profile(settings, path)
    target = (settings.output or found.parent) / CHOICE
    choice = generate.from_file(found, PROFILE)
    choices.save(choice, target)
    _show([sheets.kinds_sheet(profile), sheets.choice_sheet(choice)], json)
    print(target)
    return STANDS


def explain(settings: Settings, json: Path | None) -> int:
    """What is in force."""
    own, now = Path(_ask(settings).folder) / PROFILE, force(settings)
    tables = [Sheet("In force", ("", "fact"), tuple(now.facts))]
    if now.choice is None:
        rows = [*((f"{way} {boundary}", sharing) for sharing, way, boundary in now.data),
                *(("control", subject) for subject in now.control)]  # fmt: skip
        tables.append(Sheet("Safe defaults", ("op", "mechanism"), tuple(rows)))
    else:
        if own.exists():
            tables.append(sheets.kinds_sheet(profiles.load(own)))
        tables.append(sheets.choice_sheet(now.choice))
    return _show(tables, json)


def verify(settings: Settings, json: Path | None) -> int:
    """Litmus results of what is in force; 1 when one broke, 3 when there was none to run."""
    now = force(settings)
    with _probe(settings) as probe:
        verdicts = probe.verify(now)
        probe.finished = True
    ran = [v for v in verdicts if v.verdict != "absent"]
    rows = tuple((v.verdict, v.subject, v.direction, v.test, v.reason) for v in ran)
    _show([Sheet("Verified", ("verdict", "subject", "direction", "test", "reason"), rows)], json)
    if not ran:
        return NOTHING
    return BROKEN if _broken(verdicts, now) else STANDS


def new_platform(settings: Settings, name: str, folder: Path, json: Path | None) -> int:
    """The platform file, what is unknown, then the whole probe: facts, check, bench, choose."""
    from umsh.probe.new_platform import unknown, write

    asked = _ask(settings)
    path = write(name, asked, folder)
    print(path)
    show(Sheet("Still unknown", ("what", "look for"), tuple(unknown(asked))))
    return everything(settings, json)


def report(settings: Settings, path: Path | None) -> int:
    """One HTML file."""
    from umsh.records import write_atomic
    from umsh.report import page

    profile, found = _profile(settings, path)
    choice: Choice = generate.from_file(found, found.name)
    target = (settings.output or found.parent) / REPORT
    write_atomic(target, page(profile, choice).encode())
    print(target)
    return STANDS


def _profile(settings: Settings, path: Path | None) -> tuple[Profile, Path]:
    """The profile of that path, else of the output folder, else of this device's last probe."""
    if path is None:
        there = None if settings.output is None else settings.output / PROFILE
        path = there if there and there.exists() else Path(_ask(settings).folder) / PROFILE
    return profiles.load(path), path


def _broken(verdicts: Sequence[VerdictRecord], now: Force) -> list[VerdictRecord]:
    """Broken results of what is in force."""
    data = set(now.data)
    return [
        v
        for v in verdicts
        if v.verdict == "broken"
        and (v.subject in now.control or (v.subject, v.direction, v.boundary) in data)
    ]


def _all(profile: Profile) -> list[Sheet]:
    """Everything a profile holds, for JSON."""
    return [
        sheets.facts_sheet("Identity", profile.identity), sheets.facts_sheet("Facts", profile.facts),
        sheets.matrix_sheet(profile), *sheets.bench_sheets(profile), sheets.waived_sheet(profile),
        sheets.noise_sheet(profile),
    ]  # fmt: skip


def _show(tables: Sequence[Sheet], json: Path | None) -> int:
    if json is None or str(json) != "-":
        for sheet in tables:
            show(sheet)
    if json is not None:
        write_json(json, tables)
    return STANDS


def _tell(text: str, tables: Sequence[Sheet] = ()) -> None:
    for sheet in tables:
        show(sheet, facts_console)
    facts_console.print(text, soft_wrap=True)
