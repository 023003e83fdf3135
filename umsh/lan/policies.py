"""The policies by name, for simulator and command line; with ablations and strengthened baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from umsh.lan import baselines, fgd, gleam, mudi, umsh_policy
from umsh.lan.errors import LanInputError
from umsh.lan.screen import Policy
from umsh.lan.terms import Terms


@dataclass(frozen=True, slots=True)
class Named:
    """A policy, whether the online correction runs beside it, and what it is in a few words."""

    policy: Policy
    correct: bool
    what: str


PLAIN = ("umsh", "gleam", "fgd", "mudi", "fair", "random")

# Ablations: umsh without one of its terms.
WITHOUT = {
    "umsh-no-guard": ("starvation guard", Terms(guard_s=math.inf)),
    "umsh-no-share": ("sharing a GPU beyond occupancy 1", Terms(share=False)),
    "umsh-no-share-link": ("sharing a link beyond occupancy 1", Terms(share_link=False)),
    "umsh-no-aging": ("expecting a wait that lasted to last", Terms(aging=False)),
    "umsh-no-weigh": ("weighing a load against waiting", Terms(weigh=False)),
    "umsh-no-short-first": ("short loads first", Terms(short_first=False)),
    "umsh-all-traffic": ("leaving inference traffic out of the link constraint", Terms(loads_only=False)),
    "umsh-no-keep": ("a price on evicting weights", Terms(keep=False)),
}
OTHERS = ("umsh-no-correct", "gleam-loads-only", "fgd+cache", "mudi+cache")


def names() -> tuple[str, ...]:
    """All policy names."""
    return (*PLAIN, *WITHOUT, *OTHERS)


def make(name: str, seed: int = 0, mix: Mapping[str, float] | None = None) -> Named:
    """Build a policy; `mix` is the popularity of task types that FGD plans for. LanInputError if unknown."""
    if name in WITHOUT:
        what, terms = WITHOUT[name]
        return Named(umsh_policy.policy(terms), True, f"umsh without {what}")
    table = {
        "umsh": Named(umsh_policy.policy(), True, "this project: predicted total time, guard, correction"),
        "umsh-no-correct": Named(umsh_policy.policy(), False, "umsh without online correction"),
        "gleam": Named(gleam.step, False, "Gleam, Algorithm 1"),
        "gleam-loads-only": Named(
            partial(gleam.step, loads_only=True),
            False,
            "Gleam, inference traffic left out of the link constraint",
        ),
        "fgd": Named(partial(fgd.step, mix=mix), False, "Fragmentation Gradient Descent"),
        "fgd+cache": Named(
            partial(fgd.step, mix=mix, prefer_cache=True), False, "FGD that prefers servers with the weights"
        ),
        "mudi": Named(mudi.step, False, "Mudi-style, after the published abstract"),
        "mudi+cache": Named(
            partial(mudi.step, prefer_cache=True), False, "Mudi-style that prefers servers with the weights"
        ),
        "fair": Named(baselines.fair_step, False, "least loaded"),
        "random": Named(baselines.random_policy(seed), False, "random server with the memory"),
    }
    if name not in table:
        raise LanInputError(
            f"there is no policy {name!r}.", "Nothing was run.", f"Known: {', '.join(names())}."
        )
    return table[name]
