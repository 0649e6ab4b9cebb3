"""A ratio that keeps rising is distinguished from noise, jumps, and growth that ends."""

from __future__ import annotations

import numpy as np
import pytest
from perfwrap.measures.loop.trend import find_trend, rise_score

PLACE = np.arange(12) + 0.5
CONTROL = np.full(12, 100.0)


def test_a_line_is_found_with_its_ends() -> None:
    trend = find_trend(5 + 2 * PLACE, CONTROL)
    assert trend is not None and trend.is_linear
    assert trend.first == pytest.approx(0.05)
    assert trend.last == pytest.approx(0.29)


def test_noise_around_a_line_does_not_hide_it() -> None:
    noise = np.random.default_rng(1).normal(0, 2, 12)
    trend = find_trend(1 + 2 * PLACE + noise, CONTROL)
    assert trend is not None
    assert trend.last == pytest.approx(0.25, abs=0.05)


def test_a_machine_that_slows_down_changes_nothing() -> None:
    slower = np.linspace(1, 2, 12)
    assert find_trend(20 * slower, CONTROL * slower) is None
    assert find_trend((5 + 2 * PLACE) * slower, CONTROL * slower) == find_trend(5 + 2 * PLACE, CONTROL)


def test_faster_growth_is_no_line() -> None:
    trend = find_trend(PLACE**3, CONTROL)
    assert trend is not None and not trend.is_linear


@pytest.mark.parametrize("jump", range(1, 12))
def test_a_jump_is_no_growth_wherever_it_is(jump: int) -> None:
    assert find_trend(np.where(np.arange(12) < jump, 1.0, 20.0) + 0.01 * PLACE, CONTROL) is None


@pytest.mark.parametrize("until", (3, 6, 8))
def test_growth_that_ends_is_none(until: int) -> None:
    assert find_trend(np.minimum(PLACE, until) + 0.001 * PLACE, CONTROL) is None


def test_slight_growth_and_few_points_prove_nothing() -> None:
    assert find_trend(100 + 2 * PLACE, CONTROL) is None
    assert find_trend(PLACE[:7], CONTROL[:7]) is None
    assert find_trend(PLACE, np.where(PLACE < 2, 0, CONTROL)) is None


def test_random_series_hardly_ever_rise() -> None:
    random = np.random.default_rng(2)
    found = [find_trend(random.poisson(6, 12).astype(float), CONTROL) for _ in range(3_000)]
    assert sum(trend is not None for trend in found) <= 3


def test_the_score_is_that_of_mann_and_kendall() -> None:
    # All 66 pairs rise: (66 - 1) / sqrt(12 * 11 * 29 / 18).
    assert rise_score(PLACE) == pytest.approx(65 / np.sqrt(12 * 11 * 29 / 18))
    assert rise_score(PLACE[::-1]) == -rise_score(PLACE)
    assert rise_score(CONTROL) == 0
    assert rise_score(np.array([1.0] * 6 + [2.0] * 6)) == pytest.approx(35 / np.sqrt((3828 - 2 * 510) / 18))
