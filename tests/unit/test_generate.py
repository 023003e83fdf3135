"""The generator: pure and stable; verdict before speed; ranges, passes, page kinds and control rows."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from umsh import choice as choices
from umsh import profile as profiles
from umsh.choice import Choice
from umsh.probe import generate
from umsh.probe.ranking import Pick, ranges
from umsh.profile import Profile, SampleRecord, VerdictRecord

ROOT = Path(__file__).parents[2]
SNAPSHOTS = ROOT / "tests" / "snapshots"


@pytest.fixture
def profile() -> Profile:
    """A hand-made discrete machine: direct access wins one pass, a copy wins many; "cas" is broken."""
    return profiles.load(SNAPSHOTS / "profile.json")


def made(profile: Profile) -> Choice:
    return generate.generate(profile, "profile.json", "0" * 64)


def chosen(
    choice: Choice, nbytes: int, passes: int = 1, direction: str = "cpu->gpu", source: str = "cpu"
) -> str:
    rows = [
        row for row in choice.data
        if (row.direction, row.source, row.boundary) == (direction, source, "kernel")
        and row.min_bytes <= nbytes <= (row.max_bytes or nbytes) and row.min_passes <= passes
    ]  # fmt: skip
    return max(rows, key=lambda row: row.min_passes).mechanism


def scaled(profile: Profile, subject: str, factor: float, bench: str = "cpu_to_gpu") -> Profile:
    def change(record: SampleRecord) -> SampleRecord:
        if (record.subject, record.bench) != (subject, bench):
            return record
        return replace(record, samples=[value * factor for value in record.samples])

    return replace(profile, samples=[change(record) for record in profile.samples])


def judged(profile: Profile, subject: str, verdict: str) -> Profile:
    def change(record: VerdictRecord) -> VerdictRecord:
        return replace(record, verdict=verdict) if record.subject == subject else record

    return replace(profile, verdicts=[change(record) for record in profile.verdicts])


def test_the_text_equals_the_committed_snapshot(profile: Profile) -> None:
    assert choices.encode(made(profile)) == (SNAPSHOTS / "choice.toml").read_text()


def test_the_same_profile_gives_the_same_bytes_whatever_the_order_of_its_samples(profile: Profile) -> None:
    turned = replace(profile, samples=profile.samples[::-1])
    assert choices.encode(made(turned)) == choices.encode(made(profile))


def test_the_generated_text_is_a_choice_that_loads(profile: Profile, tmp_path: Path) -> None:
    choices.save(made(profile), tmp_path / "choice.toml")
    assert choices.load(tmp_path / "choice.toml") == made(profile)


@pytest.mark.parametrize("verdict", ["broken", "unproven", "absent"])
def test_a_mechanism_that_is_not_kept_is_never_chosen_however_fast(profile: Profile, verdict: str) -> None:
    fast = scaled(profile, "pinned.driver:WA/RA", 0.001)
    assert chosen(made(fast), 1 << 20) == "pinned.driver:WA/RA"
    text = choices.encode(made(judged(fast, "pinned:WA/RA", verdict)))
    assert "pinned.driver:WA/RA" not in text


def test_unverified_samples_are_never_used(profile: Profile) -> None:
    samples = [replace(r, verified=r.subject != "pinned.driver:WA/RA") for r in profile.samples]
    assert "pinned.driver:WA/RA" not in choices.encode(made(replace(profile, samples=samples)))


def test_a_faster_mechanism_must_win_clearly_to_displace_a_simpler_one(profile: Profile) -> None:
    level = scaled(profile, "pinned.driver:WA/RI", 0.98)
    assert chosen(made(level), 4096) == "pinned.driver:WA/RA"
    assert chosen(made(scaled(profile, "pinned.driver:WA/RI", 0.5)), 4096) == "pinned.driver:WA/RI"


def test_from_some_number_of_passes_on_the_copy_wins(profile: Profile) -> None:
    choice = made(profile)
    assert [chosen(choice, 1 << 28, passes) for passes in (1, 2, 8, 100)] == [
        "pinned.driver:WA/RA", "copy.4k:copy/copy", "copy.4k:copy/copy", "copy.4k:copy/copy",
    ]  # fmt: skip
    assert chosen(choice, 4096, 1) == "pinned.driver:WA/RA"


def test_writing_the_data_does_not_hide_that_a_copy_wins(profile: Profile) -> None:
    """A copy that saves little of the whole and most of what comes after the data is ready is taken."""
    added = []
    for record in profile.samples:
        if record.bench != "cpu_to_gpu" or record.parameters["passes"] == 1:
            continue
        fast = record.subject.startswith("copy")
        ready = [(1.0 if fast else 2.0) * (1 + n / 1e4) for n in range(len(record.samples))]
        added.append(replace(record, samples=ready, parameters={**record.parameters, "metric": "ready"}))
    level = [
        replace(record, samples=[1e9 + n for n in range(len(record.samples))])
        if record.bench == "cpu_to_gpu" and record.parameters["passes"] != 1
        else record
        for record in profile.samples
    ]
    alike = replace(profile, samples=level)
    assert chosen(made(alike), 4096, 8).startswith("pinned")
    assert chosen(made(replace(alike, samples=level + added)), 4096, 8) == "copy.4k:copy/copy"
    assert chosen(made(replace(alike, samples=level + added)), 4096, 1).startswith("pinned")


def test_ranges_of_each_need_cover_every_size_once(profile: Profile) -> None:
    by_need: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for row in made(profile).data:
        key = (row.direction, row.source, row.boundary, row.min_passes)
        by_need.setdefault(key, []).append((row.min_bytes, row.max_bytes))
    for parts in by_need.values():
        assert parts[0][0] == 1
        assert parts[-1][1] == 0
        assert all(low[1] + 1 == high[0] for low, high in itertools.pairwise(parts))


def test_large_pages_are_chosen_where_binding_them_pays(profile: Profile) -> None:
    system = profile
    for other in ("pinned:WA/RA", "pinned:WA/RI", "copy:copy/copy"):
        system = judged(system, other, "broken")
    assert chosen(made(system), 4096, direction="gpu->cpu", source="gpu") == "system.4k:WA/RA"
    assert chosen(made(system), 1 << 28, direction="gpu->cpu", source="gpu") == "system.thp:WA/RA"


def test_a_copy_is_never_the_way_inside_a_running_kernel(profile: Profile) -> None:
    assert not [row for row in made(profile).data if row.boundary == "inside" and "copy" in row.mechanism]


def test_need_both_wants_every_method_on_both_agents(profile: Profile) -> None:
    # WA/RI lacks a test in one direction, because one agent has no RI.
    fast = scaled(scaled(profile, "pinned.driver:WA/RI", 0.01), "pinned.driver:WA/RI", 0.01, "gpu_to_cpu")
    assert chosen(made(fast), 4096) == "pinned.driver:WA/RI"
    assert chosen(made(fast), 4096, direction="both") != "pinned.driver:WA/RI"


def test_a_broken_lock_is_passed_over_for_the_next(profile: Profile) -> None:
    locks = [row for row in made(profile).control if row.pattern == "lock"]
    assert {row.method for row in locks} == {"peterson"}
    repaired = made(judged(profile, "lock:cas@pinned", "kept"))
    assert {row.method for row in repaired.control if row.pattern == "lock"} == {"cas"}


def test_the_throttle_level_follows_the_number_of_pollers(profile: Profile) -> None:
    waits = [row for row in made(profile).control if row.pattern == "wait"]
    assert [row.method for row in waits] == ["thread", "block", "grid"]
    assert waits[0].min_threads == 1
    assert waits[-1].max_threads == 4096  # nothing was measured beyond


def test_a_profile_in_which_nothing_is_kept_gives_no_row(profile: Profile) -> None:
    nothing = replace(profile, verdicts=[])
    assert (made(nothing).data, made(nothing).control) == ([], [])


def test_ranges_merge_neighbours_and_split_at_the_geometric_mean() -> None:
    picks = {
        4096: Pick("a", "b", 1.5, 0.01, 9),
        65536: Pick("a", "b", 1.2, 0.02, 9),
        1 << 20: Pick("b", "a", 2, 0, 9),
    }
    low, high = ranges(picks, first=1)
    assert (low.first, low.last, high.first, high.last) == (1, (1 << 18) - 1, 1 << 18, 0)
    assert low.pick.ratio == 1.2
    assert ranges(picks, first=1, unlimited=False)[-1].last == 1 << 20


def test_check_tells_a_choice_that_drifted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / generate.RESULTS / "somewhere"
    results.mkdir(parents=True)
    (tmp_path / generate.CHOICES).mkdir(parents=True)
    shutil.copy(SNAPSHOTS / "profile.json", results / "profile.json")
    place = ["--root", str(tmp_path)]
    assert generate.main(["--check", *place]) == 1
    assert generate.main(place) == 0
    assert generate.main(["--check", *place]) == 0
    written = tmp_path / generate.CHOICES / "somewhere.toml"
    written.write_text(written.read_text().replace("min_passes = 1", "min_passes = 2", 1))
    assert generate.main(["--check", *place]) == 1
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.parametrize("platform", ["orin", "spark"])
def test_a_machine_nobody_measured_gets_a_row_for_every_need_and_no_timing(platform: str) -> None:
    text = generate.shipped(ROOT)[ROOT / "backends" / "choices" / f"{platform}.toml"]
    assert text == (ROOT / "backends" / "choices" / f"{platform}.toml").read_text()
    choice = choices.load(ROOT / "backends" / "choices" / f"{platform}.toml")
    assert choice.provenance == "documented"
    assert {(r.direction, r.source, r.boundary) for r in choice.data} == set(
        itertools.product(
            ("cpu->gpu", "gpu->cpu", "both"), ("cpu", "gpu", "file", "network"), ("kernel", "inside")
        )
    )
    assert {row.pattern for row in choice.control} == {"wait", "lock"}
    assert {(row.ratio, row.p) for row in (*choice.data, *choice.control)} == {(1.0, 1.0)}
