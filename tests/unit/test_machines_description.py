"""Machine descriptions: the shipped ones are sound, bad ones are refused with what is wrong."""

from __future__ import annotations

import re

import pytest

from umsh.backends.model.description import FIGURES, FOLDER, described, load, parse
from umsh.errors import DeviceError

TEXT = (FOLDER / "lunar.toml").read_text()


@pytest.mark.parametrize("name", described())
def test_every_figure_has_a_unit_and_a_source_or_is_assumed_in_a_range(name: str) -> None:
    machine = load(name)
    assert set(machine.figures) == set(FIGURES)
    for figure in machine.figures.values():
        assert figure.source
        assert (figure.mark == "assumed") == (figure.range is not None)


def test_the_five_machines_are_described() -> None:
    assert described() == ("arrow", "lunar", "orin", "raptor", "spark")


def changed(figure: str, old: str, new: str) -> str:
    """The description with one thing changed in the line of a figure."""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"{figure} ="))
    assert re.search(old, line)
    return TEXT.replace(line, re.sub(old, new, line, count=1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TEXT.replace("\nflush_line =", "\n# flush_line ="), "cpu.flush_line are missing"),
        (changed("l2_latency", r"value = [\d.]+", "value = -3"), "cpu.l2_latency is -3"),
        (changed("l2_latency", r"value = [\d.]+", "value = nan"), "cpu.l2_latency is nan"),
        (changed("l2_latency", r"value = [\d.]+", "value = 0"), "cpu.l2_latency is 0"),
        (changed("l2_latency", 'unit = "ns", ', ""), "unit"),
        (changed("l2_latency", 'unit = "ns"', 'unit = "us"'), "is in 'us', not in 'ns'"),
        (
            changed("l2_latency", r"value = [\d.]+", "value = 900"),
            "cpu.l2_latency 900.0 is above cpu.l3_latency",
        ),
        (changed("l3_latency", r"range = \[[\d., ]+\]", "range = [1, 2]"), "outside its range"),
        (changed("l3_latency", r", range = \[[\d., ]+\]", ""), "a range belongs to assumed figures"),
        (changed("l2_latency", r'source = ".*"', 'source = " "'), "has no source"),
        (changed("read_bandwidth", "value", "valu"), "valu"),
        (
            changed(
                "side_cache_latency",
                r"value = [\d.]+, unit = \"ns\", mark = \"assumed\", range = \[[\d., ]+\]",
                'value = 0, unit = "ns", mark = "paper"',
            ),
            "both there or both 0",
        ),
        (TEXT.replace('coherence = "one-way"\ncoh', 'coherence = "none"\ncoh'), "on a machine that is none"),
        (TEXT.replace("format = 1", "format = 2"), "format 2"),
        (TEXT.replace('name = "buffer"', 'name = "usm-host"'), "names of their own"),
        (TEXT.replace("documented = false", "documented = true"), "documented but reached by"),
        (TEXT.replace('has = ["WA", ', "has = ["), "must name every method once"),
        ("platform = ", "Invalid value"),
    ],
    ids=lambda value: value[-30:] if len(value) < 200 else "",
)
def test_a_bad_description_is_refused_with_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(DeviceError, match=re.escape(says)):
        parse(text, "bad.toml")


def test_a_machine_without_description_is_refused() -> None:
    with pytest.raises(DeviceError, match="lunar"):
        load("moon")
