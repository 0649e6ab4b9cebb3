"""What a step would take without a waste."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.measures.account.what_if import (
    Limit,
    saving,
    step_without,
    with_margin,
    without_growth,
    without_measured,
)

times = st.floats(0, 1e12)


def test_removed_time_is_gone_from_the_step() -> None:
    assert step_without(100, 30) == 70
    assert saving(100, 20, 40) == (0.6, 0.8)


def test_a_step_is_never_faster_than_its_next_limit() -> None:
    limits = [Limit("GPU", 80), Limit("loader", 60)]
    assert step_without(100, 50, limits) == 80
    assert saving(100, 10, 50, limits) == (0.8, 0.9)


def test_a_limit_beyond_todays_time_makes_nothing_slower() -> None:
    assert step_without(100, 50, [Limit("cores", 300)]) == 100
    assert saving(100, 50, 50, [Limit("cores", 300)]) == (1.0, 1.0)


@pytest.mark.parametrize("step", [0, -5])
def test_a_step_of_unknown_time_promises_nothing(step: float) -> None:
    assert saving(step, 10, 20) == (1.0, 1.0)


@given(times, times, times, st.lists(times, max_size=3))
def test_ratios_are_ordered_and_between_nothing_and_today(
    step: float, low: float, high: float, floors: list[float]
) -> None:
    best, worst = saving(step, low, high, [Limit("floor", floor) for floor in floors])
    assert 0 <= best <= worst <= 1


@given(st.floats(0, 1))
def test_what_goes_beside_a_measured_waste_leaves_more_than_nothing_and_less_the_more_is_waste(
    share: float,
) -> None:
    best, worst = without_measured(share)
    assert 0 <= best <= worst <= 1
    assert best <= 1 - share + 1e-12 and 1 - share <= worst + 1e-12
    assert 1 - best <= 1.6 * share + 1e-12


def test_a_quarter_that_was_measured_brings_up_to_a_third_and_more() -> None:
    assert without_measured(0.25) == pytest.approx((0.6375, 0.775), abs=0.001)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_margin_widens_a_range_and_keeps_what_it_says(one: float, other: float) -> None:
    best, worst = sorted((one, other))
    wider = with_margin((best, worst))
    assert 0 <= wider[0] <= best and worst <= wider[1] <= 1
    assert best - wider[0] <= 0.25 * (1 - best) + 1e-12
    assert 1 - wider[1] >= 0.75 * (1 - worst) - 1e-12


def test_the_margins_are_parts_of_the_time_and_of_a_small_saving() -> None:
    assert with_margin((0.44, 0.46)) == pytest.approx((0.418, 0.4692))
    assert with_margin((0.96, 0.98)) == pytest.approx((0.95, 0.985))
    assert with_margin((1.0, 1.0)) == (1.0, 1.0)


def test_what_grows_may_disappear_with_what_it_has_taken_from_the_beginning() -> None:
    best, worst = without_growth(0.1, 100, 300)
    assert (best, worst) == (without_measured(0.2)[0], 0.925)
    assert without_growth(0.1, 100, 101)[0] == 0.0
    assert without_growth(0.1, 100, 100) == (without_measured(0.1)[0], 0.925)
