"""The modelled machines against the paper (EuroSys '27): a test a row; the generated files are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from umsh.backends.model.description import described, load
from umsh.choice import encode
from umsh.choice import load as load_choice
from umsh.probe import paper, paper_choice
from umsh.probe.paper_rows import ROWS, Row
from umsh.resolve import _shipped

ROOT = Path(__file__).parents[2]
# Where public measurements and the paper do not agree: a non-temporal fill was measured faster than memset.
DISAGREE = {
    ("raptor", "WA on WB has the lowest CPU write time"),
    ("arrow", "WA on WB has the lowest CPU write time"),
}
IDS = [f"{row.platform}-{row.says[:40]}-{number}" for number, row in enumerate(ROWS)]


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_the_model_gives_what_the_paper_says(row: Row) -> None:
    gives, agrees = row.gives(load(row.platform))
    assert agrees == ((row.platform, row.says) not in DISAGREE), gives


def test_every_row_is_marked_and_cites_a_section() -> None:
    assert {row.mark for row in ROWS} == {"input", "fitted", "predicted"}
    assert all(row.section and row.platform in described() for row in ROWS)


def test_the_committed_table_is_the_generated_one() -> None:
    assert paper.main(["--check", "--root", str(ROOT)]) == 0


@pytest.mark.parametrize("platform", described())
def test_the_committed_choice_is_the_generated_one(platform: str) -> None:
    path = ROOT / paper_choice.CHOICES / f"{platform}.paper.toml"
    assert path.read_text() == encode(paper_choice.paper_choice(load(platform)))
    assert load_choice(path).provenance == "modelled"


def test_the_papers_choices_are_never_loaded() -> None:
    from umsh.backends import open_device

    device = open_device("model:lunar")
    found = device.platform()
    assert found is not None
    assert not any(path.name.endswith(".paper.toml") for path in _shipped(device, found[0]))


def test_raptor_has_no_choice_for_gpu_to_cpu_inside_a_kernel() -> None:
    rows = paper_choice.paper_choice(load("raptor")).data
    assert not [row for row in rows if (row.direction, row.boundary) == ("gpu->cpu", "inside")]
