"""Generate a choice from a profile: pure, the same text for the same profile, verdict before speed."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from umsh import choice as choices
from umsh import profile as profiles
from umsh.probe import documented
from umsh.probe.rank_control import control_rows
from umsh.probe.rank_data import data_rows

RESULTS = Path("microbench/results")
CHOICES = Path("backends/choices")


def generate(profile: profiles.Profile, name: str, sha256: str) -> choices.Choice:
    """The choice that a profile proves. name: how the profile is cited; sha256: of its file's bytes.

    No timing of a mechanism that is not kept enters: rows are ranked among kept subjects only. A need
    that nothing kept and timed can meet gets no row, so the safe default stands for it.
    """
    return choices.Choice(
        platform=profile.platform,
        driver=profile.driver,
        driver_version=str(profile.identity.get("driver_version", "")),
        kernel=str(profile.identity.get("kernel", "")),
        device=profile.device,
        provenance=profile.provenance,
        profile=name,
        profile_sha256=sha256,
        data=data_rows(profile),
        control=control_rows(profile),
    )


def from_file(path: Path, name: str) -> choices.Choice:
    """The choice that the profile file at `path` proves; RecordError when it is unreadable."""
    profile = profiles.load(path)
    return generate(profile, name, hashlib.sha256(path.read_bytes()).hexdigest())


def shipped(root: Path) -> dict[Path, str]:
    """Choice file -> text, for every committed profile below microbench/results of a checkout and for the
    platforms that nobody has measured."""
    found = {
        root / CHOICES / f"{name}.toml": choices.encode(choice)
        for name, choice in documented.shipped(root).items()
    }
    for path in sorted((root / RESULTS).glob("*/profile.json")):
        cited = (RESULTS / path.parent.name / path.name).as_posix()
        found[root / CHOICES / f"{path.parent.name}.toml"] = choices.encode(from_file(path, cited))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Rebuild the shipped choices of the checkout in the current folder; with --check only compare."""
    parser = argparse.ArgumentParser(prog="python -m umsh.probe.generate", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a difference")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: this folder)")
    options = parser.parse_args(arguments)
    differs = 0
    for path, text in shipped(options.root).items():
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        if not same and not options.check:
            path.write_text(text, encoding="utf-8")
        differs += not same
        state = "unchanged" if same else ("DIFFERS" if options.check else "written")
        print(f"{path}: {state}")
    if options.check and differs:
        print("run `python -m umsh.probe.generate` and commit the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
