"""The warm-up ends when the steps are steady."""

from __future__ import annotations

import numpy as np
import pytest
from perfwrap.measures.steps.warm_up import warm_up_length

rng = np.random.default_rng(0)


def steady(count: int, middle: float = 1000.0, noise: float = 0.03) -> list[int]:
    """Return durations of ordinary steps."""
    return [int(middle * (1 + noise * value)) for value in rng.standard_normal(count)]


@pytest.mark.parametrize("slow", [0, 1, 3, 12, 40])
@pytest.mark.parametrize("count", [120, 1_000])
def test_slow_first_steps_are_the_warm_up(slow: int, count: int) -> None:
    durations = np.array([5_000] * slow + steady(count), dtype=np.int64)
    assert warm_up_length(durations) == slow


def test_fast_first_steps_from_a_filled_queue_are_a_warm_up_too() -> None:
    durations = np.array([400] * 8 + steady(100), dtype=np.int64)
    assert warm_up_length(durations) == 8


def test_a_ramp_ends_about_where_it_becomes_ordinary() -> None:
    ramp = [int(1000 * (1 + 3 * 0.8**number)) for number in range(20)]
    assert 8 <= warm_up_length(np.array(ramp + steady(200), dtype=np.int64)) <= 18


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2])
def test_steps_that_only_vary_have_no_warm_up(noise: float) -> None:
    assert warm_up_length(np.array(steady(300, noise=noise), dtype=np.int64)) <= 2


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_machine_that_changes_its_pace_for_good_was_not_warming_up_before(factor: float) -> None:
    durations = np.array([9_000, *steady(70, 1000 * factor), *steady(120)], dtype=np.int64)
    assert warm_up_length(durations) == 1


def test_slow_steps_later_on_do_not_move_it() -> None:
    durations = steady(400)
    for place in range(50, 400, 50):
        durations[place] = 90_000
    assert warm_up_length(np.array([9_000, *durations], dtype=np.int64)) == 1


def test_loops_with_epochs_are_not_warm_up_up_to_the_first_epoch() -> None:
    epoch = [8_000, *steady(30)]
    assert warm_up_length(np.array(epoch * 6, dtype=np.int64)) <= 1


@pytest.mark.parametrize("durations", [[], [5], [5, 5], [100, 5], [100, 5, 5]])
def test_a_handful_of_steps_keeps_at_least_half_of_them(durations: list[int]) -> None:
    found = warm_up_length(np.array(durations, dtype=np.int64))
    assert found <= len(durations) // 2
    assert (found == 1) == (durations[:1] == [100])
