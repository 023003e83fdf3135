"""The choices that a modelled machine gives by itself: `<platform>.paper.toml`, which nothing ever loads.

They check the model against the paper's recommendations. A user's machine gets its platform's
vendor-documented default, then what its own probe proves.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from umsh.backends.model import cost
from umsh.backends.model.description import FOLDER, Machine, described, load
from umsh.choice import Choice, ControlRow, DataRow, encode
from umsh.mechanism import THROTTLE_LEVELS
from umsh.need import Boundary, Direction, Source
from umsh.probe.modelled import fastest, hand_over_ns
from umsh.probe.ranking import Pick, ranges

CHOICES = Path("backends/choices")
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
THREADS = (1, 64, 256, 512, 1024, 2048, 4096)
EVIDENCE = "modelled; docs/paper-table.md"


def paper_choice(machine: Machine) -> Choice:
    """Every one-way need and the throttle level of flags, by size and number of pollers."""
    name = f"backends/machines/{machine.platform}.toml"
    text = (FOLDER / f"{machine.platform}.toml").read_bytes()
    return Choice(
        platform=machine.platform,
        driver=machine.driver,
        driver_version="",
        kernel="",
        device=f"model:{machine.platform}",
        provenance="modelled",
        profile=name,
        profile_sha256=hashlib.sha256(text).hexdigest(),
        data=_data(machine),
        control=_control(machine),
    )


def _data(machine: Machine) -> list[DataRow]:
    rows = []
    needs: tuple[tuple[Direction, Source], ...] = (("cpu->gpu", "cpu"), ("gpu->cpu", "gpu"))
    boundaries: tuple[Boundary, ...] = ("kernel", "inside")
    for direction, source in needs:
        for boundary in boundaries:
            picks = {size: _pick(machine, direction, boundary, size) for size in SIZES}
            found = {size: pick for size, pick in picks.items() if pick.name}
            rows += [
                DataRow(
                    direction=direction,
                    source=source,
                    boundary=boundary,
                    min_bytes=part.first,
                    max_bytes=part.last,
                    mechanism=part.pick.name,
                    next=part.pick.next,
                    ratio=part.pick.ratio,
                    p=part.pick.p,
                    evidence=EVIDENCE,
                )
                for part in ranges(found, first=1)
            ]
    return rows


def _pick(machine: Machine, direction: str, boundary: str, nbytes: int) -> Pick:
    """The fastest kept sharing and, as the runner-up, the best on another kind of memory."""
    won = fastest(machine, direction, boundary, nbytes)
    if not won:
        return Pick("", "", 1.0, 1.0, 0)
    kind = won.partition(":")[0]
    second = fastest(machine, direction, boundary, nbytes, (kind,))
    pages = "thp" if nbytes >= cost.LARGE_PAGE_NBYTES else "4k"
    times = {name: hand_over_ns(machine, name, direction, nbytes) for name in (won, second) if name}
    ratio = round(times[second] / times[won], 3) if second else 1.0
    return Pick(_mechanism(won, pages), _mechanism(second, pages), ratio, 1.0, 1)


def _mechanism(sharing: str, pages: str) -> str:
    kind, _, how = sharing.partition(":")
    return f"{kind}.{pages}:{how}" if sharing else ""


def _control(machine: Machine) -> list[ControlRow]:
    """Flags lie in memory the GPU does not cache where there is such a kind; levels by contention."""
    memory = next((k.name for k in machine.kinds if k.gpu == "UC" and k.cpu == "WB" and k.documented), "")
    memory = memory or machine.kinds[0].name
    picks = {}
    for threads in THREADS:
        times: Mapping[str, float] = {one: cost.round_ns(machine, one, threads) for one in THROTTLE_LEVELS}
        first, second = sorted(THROTTLE_LEVELS, key=lambda one: (times[one], THROTTLE_LEVELS.index(one)))[:2]
        picks[threads] = Pick(first, second, round(times[second] / times[first], 3), 1.0, 1)
    return [
        ControlRow(
            pattern="wait",
            memory=memory,
            min_threads=part.first,
            max_threads=part.last,
            method=part.pick.name,
            next=part.pick.next,
            ratio=part.pick.ratio,
            p=part.pick.p,
            evidence=EVIDENCE,
        )
        for part in ranges(picks, first=1, unlimited=False)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write every <platform>.paper.toml of the checkout in the current folder; with --check only compare."""
    parser = argparse.ArgumentParser(prog="python -m umsh.probe.paper_choice", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a difference")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: this folder)")
    options = parser.parse_args(arguments)
    differs = 0
    for platform in described():
        path, text = options.root / CHOICES / f"{platform}.paper.toml", encode(paper_choice(load(platform)))
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        if not same and not options.check:
            path.write_text(text, encoding="utf-8")
        differs += not same
        print(f"{path}: {'unchanged' if same else 'DIFFERS' if options.check else 'written'}")
    return int(options.check and differs > 0)


if __name__ == "__main__":
    sys.exit(main())
