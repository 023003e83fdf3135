"""Oracle: optimal where the answer is known by hand, never beaten, and umsh near it."""

from __future__ import annotations

import itertools
import statistics

import pytest

from umsh.lan.cluster import Link
from umsh.lan.errors import LanInputError
from umsh.lan.oracle import Batch, best, run_policy
from umsh.lan.policies import make
from umsh.lan.profiles import load_profiles
from umsh.lan.sim.results import oracle_batch

PROFILES = load_profiles()
LINKS = {"router": Link("router", 1000.0)}


def test_one_cold_request_takes_load_and_inference_on_the_fastest_gpu() -> None:
    batch = Batch(PROFILES.types, PROFILES.servers, LINKS, ("llama3B-ggml",), (frozenset(),) * 4)
    found = best(batch)
    assert found.proven
    assert found.total_s == pytest.approx(63.85 + 4.2)


def test_two_high_occupancy_tasks_are_best_one_after_the_other() -> None:
    # 0.9 twice on one GPU: sharing ends both at 1.897 r, in turn they end at r and 2 r.
    servers = PROFILES.servers[:1]
    types = {"sd-compvis": PROFILES.types["sd-compvis"]}
    warm_s = types["sd-compvis"].warm_s
    batch = Batch(types, servers, LINKS, ("sd-compvis",) * 2, (frozenset({"sd-compvis"}),))
    together = 2 * (1.4402 * warm_s + 1.0544 * 1.8 * 3.0)
    assert best(batch).total_s < together


@pytest.mark.parametrize(("requests", "servers"), [(3, 2), (4, 2)])
def test_no_policy_beats_the_oracle(requests: int, servers: int) -> None:
    for seed in range(6):
        batch = oracle_batch(seed, requests, servers)
        least = best(batch)
        assert least.proven
        for name in ("umsh", "gleam", "fgd", "mudi", "fair"):
            assert run_policy(batch, make(name).policy) >= least.total_s - 1e-6


def test_umsh_is_within_10_percent_of_the_oracle_on_average() -> None:
    gaps = []
    for seed, (requests, servers) in itertools.product(range(8), ((4, 2), (4, 3))):
        batch = oracle_batch(seed, requests, servers)
        mine = run_policy(batch, make("umsh").policy)
        gaps.append(mine / best(batch, mine + 1e-6).total_s - 1.0)
    assert statistics.fmean(gaps) <= 0.10


def test_too_many_requests_are_refused() -> None:
    batch = Batch(PROFILES.types, PROFILES.servers[:1], LINKS, ("fno-pytorch",) * 9, (frozenset(),))
    with pytest.raises(LanInputError, match="too many"):
        best(batch)
