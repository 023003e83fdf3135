"""The HTML report and the tables: complete, self-contained, honest, escaped, legible at any width."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from umsh import choice as choices
from umsh import profile as profiles
from umsh.choice import Choice
from umsh.probe import sheets
from umsh.probe.show import show, stacked
from umsh.profile import Profile
from umsh.report import page

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profiles.load(SNAPSHOTS / "profile.json")


@pytest.fixture(scope="module")
def choice() -> Choice:
    return choices.load(SNAPSHOTS / "choice.toml")


@pytest.fixture(scope="module")
def html(profile: Profile, choice: Choice) -> str:
    return page(profile, choice)


class Links(HTMLParser):
    """Everything a page would load, and tags that were not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.loads += [f"{tag} {found[name]}" for name in ("src", "srcset", "data") if found.get(name)]
        if tag in ("link", "script", "iframe"):
            self.loads.append(tag)
        if tag in ("section", "table", "div", "figure", "details", "svg"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("section", "table", "div", "figure", "details", "svg"):
            assert self.open.pop() == tag


def text_of(sheet: sheets.Sheet, width: int) -> str:
    out = io.StringIO()
    show(sheet, Console(file=out, width=width, force_terminal=False, highlight=False))
    return out.getvalue()


def test_the_page_is_one_file_that_loads_nothing(html: str) -> None:
    parser = Links()
    parser.feed(html)
    assert parser.loads == []
    assert parser.open == []
    assert "@import" not in html
    assert "url(http" not in html


def test_the_page_holds_identity_verdicts_plots_choice_and_what_was_waived(
    html: str, profile: Profile
) -> None:
    for fact in profile.identity:
        assert fact in html
    assert html.count("<svg") >= 10
    assert "pinned.driver:WA/RA" in html
    assert "202 of 3000 instances" in html
    assert "at most 1024 threads can wait at once at thread level here" in html
    assert "measured" in html
    assert "quick: fewer sizes and runs" in html


def test_names_that_a_driver_gave_cannot_become_markup(html: str) -> None:
    assert "Hand-made GPU &lt;A&amp;B&gt;" in html
    assert "<A&B>" not in html


def test_a_report_names_what_is_broken_before_anything_else(html: str) -> None:
    alert = html.index("Broken here, and never chosen: lock:cas@pinned")
    assert alert < html.index("What is chosen")


def test_modelled_figures_are_said_to_be_modelled(profile: Profile, choice: Choice) -> None:
    html = page(replace(profile, provenance="modelled"), choice)
    assert "comes from a model of this machine" in html
    assert 'class="badge modelled">modelled' in html


def test_noise_that_forbids_a_choice_is_told_at_the_top(profile: Profile, choice: Choice) -> None:
    noisy = replace(profile, noise={"twins": 10.0, "twins_differ": 9.0, "spread": 0.2})
    html = page(noisy, choice)
    assert html.index("Too noisy to rank mechanisms: in 9 of 10 groups") < html.index("What is chosen")


def test_a_profile_without_samples_still_makes_a_page(profile: Profile, choice: Choice) -> None:
    empty = replace(profile, samples=[], verdicts=[], noise={})
    assert "No mechanism is both kept and timed" in page(empty, replace(choice, data=[], control=[]))


def test_the_page_is_the_same_for_the_same_profile(html: str, profile: Profile, choice: Choice) -> None:
    assert page(profile, choice) == html


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal_and_lose_no_word(profile: Profile, choice: Choice, width: int) -> None:
    for sheet in (sheets.choice_sheet(choice), sheets.kinds_sheet(profile), sheets.trouble_sheet(profile)):
        text = text_of(sheet, width)
        assert max(map(len, text.splitlines())) <= width
        squeezed = re.sub(r"\s", "", text)
        for row in sheet.rows:
            assert all(part in squeezed for part in row[0].replace("->", "-> ").replace("-> ", "->").split())


def test_a_narrow_table_pairs_its_cells() -> None:
    wide = sheets.Sheet("t", ("a", "b", "c", "d", "e", "f"), (("1", "2", "3", "4", "5", "6"),))
    narrow = stacked(wide)
    assert narrow.columns == ("a\nb", "c\nd", "e", "f")
    assert narrow.rows == (("1\n2", "3\n4", "5", "6"),)


def test_an_empty_table_prints_nothing() -> None:
    assert text_of(sheets.Sheet("t", ("a",), ()), 80) == ""


def test_rows_that_differ_in_the_source_only_are_one_row(choice: Choice) -> None:
    rows = sheets.choice_sheet(choice).rows
    assert len(rows) < len(choice.data) + len(choice.control)
    assert any(row[0] == "gpu->cpu kernel" for row in rows)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(412.4, "ns", "412 ns"), (1.5e6, "ns", "1.5 ms"), (0.0, "ns", "0 ns"), (2.5e9, "B/s", "2.5 GB/s"),
     (1024.0, "B", "1.02 kB"), (2.0, "count", "2")],
)  # fmt: skip
def test_values_are_shown_in_a_unit_that_people_read(value: float, unit: str, text: str) -> None:
    assert sheets.value_text(value, unit) == text
