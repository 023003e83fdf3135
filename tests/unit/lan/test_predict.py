"""Predictor: the paper's worked numbers, exact, and what an engineer expects of overlaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umsh.lan.cluster import Cell
from umsh.lan.correct import Correction, saw_inference, saw_utilisation
from umsh.lan.errors import LanInputError
from umsh.lan.predict import (
    GAMMA_COMPUTE,
    fit_gamma,
    infer_estimate,
    latencies_s,
    latency_factor,
    newcomer_s,
    remaining_infer_s,
    remaining_load_s,
    start_later_s,
    start_now_s,
)

TASKS = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 500.0)), min_size=1, max_size=8
)  # (occupancy, seconds left)


def test_two_equal_loads_take_the_59_76_s_of_appendix_a3() -> None:
    assert latencies_s([(0.72, 41.50), (0.72, 41.50)]) == pytest.approx([59.76, 59.76])


def test_three_tasks_end_at_13_9_and_3_4_s() -> None:
    assert latencies_s([(0.9, 10.0), (0.5, 6.0), (0.3, 2.0)]) == pytest.approx([13.0, 9.0, 3.4])


def test_two_llama8b_take_17_34_s_without_penalty() -> None:
    assert latencies_s([(0.63, 13.76), (0.63, 13.76)])[0] == pytest.approx(17.34, abs=0.005)


def test_gamma_fitted_from_table_4_is_1_054() -> None:
    gamma = fit_gamma([(1.26, 18.28 / 13.76), (0.63, 1.0)])
    assert gamma == pytest.approx(1.054, abs=0.001)
    assert gamma == pytest.approx(GAMMA_COMPUTE, abs=0.0001)
    assert latencies_s([(0.63, 13.76)] * 2, gamma)[0] == pytest.approx(18.28)


def test_gamma_of_the_link_fits_below_one_and_is_held_at_one() -> None:
    assert fit_gamma([(1.44, 58.34 / 41.50)]) == 1.0


def test_gamma_needs_a_saturated_measurement() -> None:
    with pytest.raises(LanInputError, match="no measurement"):
        fit_gamma([(0.4, 1.0), (0.9, 1.0)])


def test_below_saturation_nothing_slows_down() -> None:
    assert latency_factor(0.99, GAMMA_COMPUTE * 0.9) == 1.0
    assert latencies_s([(0.5, 7.0), (0.4, 3.0)]) == [7.0, 3.0]


@given(TASKS)
def test_no_task_ends_before_its_time_alone_and_order_of_input_does_not_matter(tasks) -> None:  # type: ignore[no-untyped-def]
    ends = latencies_s(tasks, GAMMA_COMPUTE)
    assert all(end >= left - 1e-9 for end, (_, left) in zip(ends, tasks, strict=True))
    again = latencies_s(tasks[::-1], GAMMA_COMPUTE)[::-1]
    assert again == pytest.approx(ends, rel=1e-9, abs=1e-9)


@given(TASKS, st.floats(0.01, 1.0), st.floats(0.1, 300.0), st.integers(1, 3))
def test_the_newcomer_form_equals_the_full_form(residents, u, r, count) -> None:  # type: ignore[no-untyped-def]
    full = latencies_s([*residents, *[(u, r)] * count], GAMMA_COMPUTE)
    assert newcomer_s(residents, u, r, count, GAMMA_COMPUTE) == pytest.approx(full[-1], rel=1e-9)


def test_starting_now_costs_own_time_and_the_delay_of_residents() -> None:
    assert start_now_s([(0.66, 4.0)], 0.66, 4.0, 1.0) == pytest.approx(4.0 * 1.32 + 4.0 * 0.32)
    assert start_later_s([(0.66, 4.0)], 0.66, 4.0, 1.0, 0.0) == pytest.approx(8.0)
    assert start_later_s([(0.66, 4.0)], 0.66, 4.0, 1.0, 0.0, waited_s=10.0) == pytest.approx(14.0)


def test_progress_gives_time_left() -> None:
    assert remaining_load_s(3e9, 4e9, 146.03) == pytest.approx(146.03 / 4)
    assert remaining_infer_s(30, 120, 8.0) == pytest.approx(6.0)
    assert remaining_infer_s(130, 120, 8.0) == 0.0


def test_the_estimate_is_as_sure_as_one_synchronise_call_and_the_pattern() -> None:
    estimate = infer_estimate(50, 100, 10.0, jitter=0.02)
    assert (estimate.value_s, estimate.low_s, estimate.high_s) == pytest.approx((5.0, 4.7, 5.3))


def test_occupancy_that_is_30_percent_too_low_is_corrected_from_utilisation() -> None:
    correction, key = Correction(), ("llama8B-ggml", "4090")
    for _ in range(60):
        correction = saw_utilisation(correction, 0.58 * 1.3, [(key, 0.58)])
    assert correction.cell(key, Cell(0.58, 14.4)).compute == pytest.approx(0.754, abs=0.01)


def test_a_saturated_gpu_teaches_nothing_about_a_sum_above_one() -> None:
    correction = saw_utilisation(Correction(), 1.0, [(("a", "g"), 0.7), (("b", "g"), 0.8)])
    assert correction == Correction()


def test_a_slower_gpu_than_profiled_is_corrected_within_bounds() -> None:
    correction, key = Correction(), ("whisper-large-v3", "4070")
    for _ in range(40):
        correction = saw_inference(correction, key, 6.1, 9.15)
    assert correction.cell(key, Cell(0.4, 6.1)).infer_s == pytest.approx(9.15, abs=0.05)
    for _ in range(40):
        correction = saw_inference(correction, key, 6.1, 610.0)
    assert correction.cell(key, Cell(0.4, 6.1)).infer_s == pytest.approx(12.2)
