"""Plots of a profile as SVG text: curves against size with their spread, comparisons as bars."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from umsh.mechanism import Mechanism
from umsh.probe import stats
from umsh.probe.evidence import samples_by
from umsh.probe.rank_data import size_text
from umsh.profile import Profile

# Okabe and Ito's palette: told apart by everyone, also in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
BASELINE = "#8a8f98"
By = Mapping[int, Mapping[str, Sequence[float]]]


def transfer(profile: Profile, bench: str, rate: bool) -> str:
    """Bandwidth (GB/s) or time of one hand-over against size: the plain pair of each memory, and copy."""
    by_size = samples_by(profile, bench, "time", "nbytes", passes=1)
    names = _plain_pairs(by_size)
    if not names:
        return ""
    figure, axes = _figure()
    for place, name in enumerate(names):
        points = [(size, stats.summarise(s[name])) for size, s in by_size.items() if name in s]
        sizes = [size for size, _ in points]
        if rate:  # bytes per ns are GB/s
            rows = [(n / s.median, n / s.high, n / s.low) for n, s in points]
        else:
            rows = [(s.median / 1e3, s.low / 1e3, s.high / 1e3) for _, s in points]
        copy = name.startswith("copy.")
        colour = BASELINE if copy else COLOURS[place % len(COLOURS)]
        axes.plot(sizes, [r[0] for r in rows], color=colour, marker="o", markersize=4,
                  linestyle="--" if copy else "-", label=_short(name))  # fmt: skip
        axes.fill_between(sizes, [r[1] for r in rows], [r[2] for r in rows], color=colour, alpha=0.15, lw=0)
    _sizes(axes, sorted(by_size))
    _log(axes)
    axes.set_ylabel("GB/s (written, handed over, read)" if rate else "time of one hand-over [us]")
    axes.legend(frameon=False)
    return _svg(figure)


def against_size(profile: Profile, bench: str, metric: str) -> str:
    """Time against size, by candidate."""
    by_size = samples_by(profile, bench, metric, "nbytes")
    names = list(dict.fromkeys(name for samples in by_size.values() for name in samples))
    if not names:
        return ""
    figure, axes = _figure()
    for place, name in enumerate(names):
        points = [(size, stats.summarise(s[name])) for size, s in by_size.items() if name in s]
        sizes = [size for size, _ in points]
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(
            sizes, [s.median / 1e3 for _, s in points], color=colour, marker="o", markersize=4, label=name
        )
        low, high = [s.low / 1e3 for _, s in points], [s.high / 1e3 for _, s in points]
        axes.fill_between(sizes, low, high, color=colour, alpha=0.15, lw=0)
    _sizes(axes, sorted(by_size))
    _log(axes)
    axes.set_ylabel("time [us]")
    axes.legend(frameon=False)
    return _svg(figure)


def contention(profile: Profile) -> str:
    """Time of one round against the number of waiting threads, by throttle level."""
    by_threads = samples_by(profile, "contention", "round", "threads")
    names = list(dict.fromkeys(name for samples in by_threads.values() for name in samples))
    if not names:
        return ""
    figure, axes = _figure()
    for place, name in enumerate(names):
        points = [(n, stats.summarise(s[name])) for n, s in by_threads.items() if name in s]
        middle = [s.median / 1e3 for _, s in points]
        error = [
            [(s.median - s.low) / 1e3 for _, s in points],
            [(s.high - s.median) / 1e3 for _, s in points],
        ]
        axes.errorbar([n for n, _ in points], middle, yerr=error, color=COLOURS[place], marker="o",
                      markersize=4, capsize=3, label=name)  # fmt: skip
    axes.set_xscale("log", base=2)
    _log(axes)
    axes.set_xticks(sorted(by_threads), [str(n) for n in sorted(by_threads)])
    axes.set_xlabel("waiting GPU threads")
    axes.set_ylabel("time of one round [us]")
    axes.legend(frameon=False)
    return _svg(figure)


def bars(profile: Profile, bench: str, metric: str, scale: float, label: str, **fixed: object) -> str:
    """Median and quartiles of every candidate at the last set of parameters that fits."""
    records = [
        r for r in profile.samples
        if r.bench == bench and r.samples and r.verified and not r.parameters.get("twin")
        and r.parameters["metric"] == metric and all(r.parameters.get(k) == v for k, v in fixed.items())
    ]  # fmt: skip
    if not records:
        return ""
    last = {**records[-1].parameters}
    records = [r for r in records if r.parameters == last]
    summaries = [stats.summarise(r.samples) for r in records]
    figure, axes = _figure(height=0.7 + 0.3 * len(records))
    colours = [BASELINE if r.baseline_of or r.subject.startswith("copy") else COLOURS[0] for r in records]
    middle = [s.median / scale for s in summaries]
    error = [
        [(s.median - s.low) / scale for s in summaries],
        [(s.high - s.median) / scale for s in summaries],
    ]
    axes.barh([r.subject for r in records], middle, xerr=error, color=colours, height=0.62,
              error_kw={"lw": 1, "capsize": 2.5, "ecolor": "#333"})  # fmt: skip
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(label)
    axes.set_xlim(left=0)
    return _svg(figure)


def _plain_pairs(by_size: By) -> list[str]:
    """The pair of plain write and plain read of each memory and page kind, and copies, as measured."""
    names = list(dict.fromkeys(name for samples in by_size.values() for name in samples))
    return [
        n for n in names if (m := Mechanism.parse(n)).write in ("WA", "copy") and m.read in ("RA", "copy")
    ]


def _short(name: str) -> str:
    mechanism = Mechanism.parse(name)
    return f"{mechanism.memory}.{mechanism.pages}" + (" (baseline)" if mechanism.write == "copy" else "")


def _figure(height: float = 3.3) -> tuple[Any, Any]:
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "umsh", "font.family": "sans-serif", "font.size": 9.5}
    )
    figure = Figure(figsize=(6.2, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, lw=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _log(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))


def _sizes(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_text(size) for size in sizes])
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.set_xlabel("size")


def _svg(figure: Any) -> str:
    """The figure as an <svg> element. Its ids are hashes of what they name, so one page may hold many."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
