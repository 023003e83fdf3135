"""Simulator: against closed forms of the paper, conservation, faults, and drift of the committed results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umsh.lan.cluster import Link, Server
from umsh.lan.errors import LanInputError
from umsh.lan.profiles import load_profiles, variants
from umsh.lan.sim.experiments import EXPERIMENTS, starvation
from umsh.lan.sim.metrics import median_interval
from umsh.lan.sim.report import tables
from umsh.lan.sim.results import drift
from umsh.lan.sim.run import run, world
from umsh.lan.sim.scenario import Failure, Scenario, misprofiled, paper_setup

PROFILES = load_profiles()
TYPES = PROFILES.types


def scenario(clients: tuple[tuple[str, ...], ...], servers: tuple[Server, ...], **more: object) -> Scenario:
    fields: dict[str, object] = {
        "name": "test",
        "types": TYPES,
        "truth": TYPES,
        "servers": servers,
        "links": (Link("router", 1000.0),),
        "clients": clients,
        "starts_s": (0.5,) * len(clients),
        "heartbeat_delay_s": 0.0,
    }
    return Scenario(**(fields | more))  # type: ignore[arg-type]


def test_one_cold_task_takes_its_loading_and_inference_time() -> None:
    _, outcome = run(scenario((("llama3B-ggml",),), PROFILES.servers[1:2]), "gleam")
    done = outcome.done[0]
    assert done.placed_s == 1.0  # the first scheduling period
    assert done.infer_from_s - done.placed_s == pytest.approx(63.85)
    assert done.end_s - done.infer_from_s == pytest.approx(4.2)
    assert done.cold


def test_two_loads_on_one_link_slow_down_as_table_3_predicts() -> None:
    servers = (PROFILES.servers[1], PROFILES.servers[3])
    _, outcome = run(scenario((("sd-compvis",), ("sd-compvis",)), servers), "fair")
    factor = 2 * 0.7201
    assert [d.infer_from_s - d.placed_s for d in outcome.done] == pytest.approx([29.68 * factor] * 2)


def test_two_inferences_on_one_gpu_slow_down_as_table_4_measured() -> None:
    types = {"llama8B-ggml": replace(TYPES["llama8B-ggml"], warm_s=0.0)}
    lan = scenario(
        (("llama8B-ggml",), ("llama8B-ggml",)),
        PROFILES.servers[3:],
        types=types,
        truth=types,
        cached={"s3": ("llama8B-ggml",)},
    )
    _, outcome = run(lan, "fair")
    assert [d.end_s - d.infer_from_s for d in outcome.done] == pytest.approx(
        [18.7 * 18.28 / 13.76] * 2, rel=1e-3
    )


def test_the_second_run_of_a_type_uses_the_weights() -> None:
    _, outcome = run(scenario((("llama3B-ggml",) * 2,), PROFILES.servers[1:2]), "gleam")
    assert [done.cold for done in outcome.done] == [True, False]
    _, outcome = run(scenario((("llama3B-ggml",) * 2,), PROFILES.servers[1:2], weight_cache=False), "gleam")
    assert [done.cold for done in outcome.done] == [True, True]


def test_llava_evicts_sd3_as_in_figure_8() -> None:
    loop = ("sd3-medium-t5", "llava7B-pytorch", "sd3-medium-t5")
    _, outcome = run(scenario((loop,), PROFILES.servers[1:2]), "gleam")
    assert [done.cold for done in outcome.done] == [True, True, True]


@pytest.mark.parametrize("policy", ["umsh", "gleam", "fgd", "mudi", "fair", "random"])
def test_every_request_is_served_once_and_memory_never_overflows(policy: str) -> None:
    lan = world(paper_setup(PROFILES, 4, 3, "cold"), policy)
    start = lan._start

    def checked(placement):  # type: ignore[no-untyped-def]
        start(placement)
        for node in lan.nodes.values():
            idle = sum(TYPES[name].shared_mb for name in node.cached if name not in node.counts)
            assert node.pinned_mb + idle <= node.server.memory_mb + 1e-6

    lan._start = checked  # type: ignore[method-assign]
    outcome = lan.run()
    assert len(outcome.done) == 75
    assert len({(done.client, done.submit_s) for done in outcome.done}) == 75
    assert all(done.submit_s <= done.placed_s <= done.infer_from_s < done.end_s for done in outcome.done)
    assert all(
        node.pinned_mb == pytest.approx(0.0, abs=1e-6) and not node.jobs for node in lan.nodes.values()
    )
    assert lan.mbps["router"] == pytest.approx(0.0, abs=1e-6)


def test_a_run_is_reproducible() -> None:
    lan = paper_setup(PROFILES, 2, 5)
    assert run(lan, "umsh")[1].done == run(lan, "umsh")[1].done


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    gpus=st.integers(1, 4),
    policy=st.sampled_from(["umsh", "gleam", "mudi"]),
    loss=st.sampled_from([0.0, 0.3, 0.6]),
    down=st.floats(1.0, 200.0),
    away=st.floats(0.5, 60.0),
)
def test_failures_and_lost_heartbeats_lose_no_request(seed, gpus, policy, loss, down, away) -> None:  # type: ignore[no-untyped-def]
    lan = replace(
        paper_setup(PROFILES, gpus, seed, runs=2),
        failures=(Failure("s0", down, down + away),),
        heartbeat_loss=loss,
        heartbeat_delay_s=0.3,
    )
    summary, outcome = run(lan, policy)
    assert summary.done + summary.refused == 2 * len(lan.clients)
    assert len({(done.client, done.submit_s) for done in outcome.done}) == summary.done


def test_all_servers_gone_leaves_requests_waiting_until_one_returns() -> None:
    lan = scenario((("llama3B-ggml",),), PROFILES.servers[1:2], failures=(Failure("s1", 20.0, 120.0),))
    summary, outcome = run(lan, "umsh")
    assert summary.requeued == 1
    assert outcome.done[0].end_s > 120.0 + 63.85


def test_all_servers_gone_for_ever_refuses_in_bounded_time() -> None:
    lan = scenario((("llama3B-ggml",),), PROFILES.servers[1:2], failures=(Failure("s1", 20.0, 1e6),))
    summary, outcome = run(lan, "umsh")
    assert (summary.done, summary.refused) == (0, 1)
    assert "waited longer" in outcome.refused[0][1]


def test_a_task_larger_than_every_gpu_is_refused_with_the_reason() -> None:
    summary, outcome = run(scenario((("llava7B-pytorch", "fno-pytorch"),), PROFILES.servers[2:3]), "umsh")
    assert (summary.done, summary.refused) == (1, 1)
    assert "largest server has 12288 MiB" in outcome.refused[0][1]


def test_gleam_starves_a_large_load_where_umsh_serves_it() -> None:
    lan = starvation(PROFILES, 0)
    small = replace(lan, clients=tuple(loop[:12] for loop in lan.clients))
    gleam, ours = run(small, "gleam")[0], run(small, "umsh")[0]
    assert gleam.queueing_max_s > 5 * ours.queueing_max_s


def test_online_correction_learns_the_true_occupancy() -> None:
    lan = world(misprofiled(paper_setup(PROFILES, 4, 1), 0.3), "umsh")
    lan.run()
    correction = lan.scheduler.correction
    better = worse = 0
    for (name, gpu), factor in correction.occupancy.items():
        believed, true = lan.scenario.types[name].cells[gpu].compute, lan.types[name].cells[gpu].compute
        better += abs(believed * factor - true) < abs(believed - true)
        worse += abs(believed * factor - true) > abs(believed - true)
    assert better > 2 * worse


def test_assumed_cells_are_marked_and_every_variant_changes_only_them() -> None:
    for variant in variants():
        for name, kind in load_profiles(variant).types.items():
            for gpu, cell in kind.cells.items():
                same = (cell.compute, cell.infer_s) == (
                    TYPES[name].cells[gpu].compute,
                    TYPES[name].cells[gpu].infer_s,
                )
                assert same or cell.mark == "assumed"
    assert "sd-compvis/4070" in PROFILES.assumed
    with pytest.raises(LanInputError, match="no profile variant"):
        load_profiles("nonsense")


def test_the_types_that_do_not_fit_12_gb_are_the_three_crosses_of_figure_27() -> None:
    absent = {name for name, kind in TYPES.items() if "4070" not in kind.cells}
    assert absent == {name for name, kind in TYPES.items() if kind.memory_mb > 12288}
    assert absent == {"sd3-medium-t5", "llama8B-ggml", "llava7B-pytorch"}


def test_experiments_name_existing_policies_and_distinct_rows() -> None:
    for make_cases in EXPERIMENTS.values():
        seen = set()
        for case in make_cases():
            for policy in case.policies:
                key = (case.label, case.scenario.seed, policy)
                assert key not in seen
                seen.add(key)


def test_the_median_interval_covers_the_middle() -> None:
    middle, low, high = median_interval(list(range(30)))
    assert (middle, low, high) == (14.5, 9, 20)


def test_committed_results_come_from_this_code() -> None:
    assert drift(["paper"]) == []


def test_committed_tables_come_from_the_committed_results() -> None:
    folder = Path(__file__).parents[3] / "docs" / "lan"
    for name, text in tables().items():
        assert (folder / name).read_text(encoding="utf-8") == text
