from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from perfwrap.comparison.noise import MIN_NOISE, StepBlocks, typical, whole

MS = 1_000_000.0


def step_times(
    seed: int, count: int = 120, scale: float = 1.0, alike: float = 0.0, spread: float = 0.05
) -> StepBlocks:
    """Return step times that vary by ``spread``, each ``alike`` the one before (an autoregressive series)."""
    chance = np.random.default_rng(seed)
    deviation, times = 0.0, []
    for kick in chance.normal(0.0, spread * math.sqrt(1 - alike**2), count):
        deviation = alike * deviation + kick
        times.append(scale * 10 * MS * math.exp(deviation))
    return StepBlocks(1, tuple(times))


@pytest.mark.parametrize("alike", [0.0, 0.9])
def test_equal_runs_seldom_differ_even_where_neighbours_are_alike(alike: float) -> None:
    pairs = itertools.pairwise([[step_times(seed, alike=alike)] for seed in range(81)])
    seen = [
        change for pair in pairs for change in (typical(*pair), whole(*pair)) if change and change.is_real
    ]
    assert len(seen) <= 0.05 * 80


def test_a_difference_of_a_tenth_is_seen() -> None:
    changes = [typical([step_times(seed)], [step_times(100 + seed, scale=1.1)]) for seed in range(20)]
    assert all(change is not None and change.is_real and change.ratio > 1 for change in changes)
    first = changes[0]
    assert first is not None
    assert first.low < 1.1 < first.high


def test_neighbours_that_are_alike_make_more_noise() -> None:
    alone, alike = (typical([step_times(1, alike=of)], [step_times(2, alike=of)]) for of in (0.0, 0.95))
    assert alone is not None
    assert alike is not None
    assert alike.noise > 1.5 * alone.noise


def test_two_per_cent_are_noise_however_steady_the_runs_are() -> None:
    change = typical([StepBlocks(1, (10 * MS,) * 40)], [StepBlocks(1, (10.1 * MS,) * 40)])
    assert change is not None
    assert change.noise == MIN_NOISE
    assert not change.is_real


def test_one_moment_of_standing_still_does_not_move_the_typical_step() -> None:
    calm = step_times(1)
    stalled = StepBlocks(1, (*calm.mean_ns[:60], 100_000 * MS, *calm.mean_ns[61:]))
    change, mean = typical([calm], [stalled]), whole([calm], [stalled])
    assert change is not None
    assert abs(change.ratio - 1) < 0.01
    assert mean is not None
    assert mean.ratio > 50
    assert not mean.is_real


def test_runs_of_different_length_are_compared_in_blocks_of_the_same_length() -> None:
    # Half of the steps take twice as long: the median of single steps would say one thing, of pairs another.
    single = StepBlocks(1, (10 * MS, 20 * MS) * 40)
    change = typical([single], [StepBlocks(2, (15 * MS,) * 100)])
    assert change is not None
    assert change.ratio == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("first", "second"), [((1, 7), (1, 100)), ((1, 100), (64, 100)), ((1, 0), (1, 0)), ((1, 100), (1, 0))]
)
def test_too_few_blocks_show_nothing(first: tuple[int, int], second: tuple[int, int]) -> None:
    sides = [[StepBlocks(steps, (10 * MS,) * count)] for steps, count in (first, second)]
    assert typical(sides[0], sides[1]) is None
    assert whole(sides[0], sides[1]) is None


def test_the_same_runs_give_the_same_noise_each_time() -> None:
    assert typical([step_times(1)], [step_times(2)]) == typical([step_times(1)], [step_times(2)])


PAIRS = 80


def unlike(seed: int, runs: int, spread: float, scale: float = 1.0) -> list[StepBlocks]:
    """Return runs that are steady in themselves, and differ from each other."""
    chance = np.random.default_rng(seed)
    return [
        step_times(1000 * seed + number, scale=scale * math.exp(chance.normal(0.0, spread)), spread=0.01)
        for number in range(runs)
    ]


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_several_runs_show_how_much_runs_differ_where_one_of_each_cannot(runs: int) -> None:
    sides = [(unlike(seed, runs, 0.1), unlike(500 + seed, runs, 0.1)) for seed in range(PAIRS)]
    wrong = [pair for pair in sides for change in [typical(*pair)] if change is None or change.is_real]
    assert len(wrong) <= 0.05 * PAIRS
    alone = [typical(one[:1], other[:1]) for one, other in sides]
    assert sum(change is None or change.is_real for change in alone) > 0.5 * PAIRS


def test_many_runs_of_each_see_what_few_cannot() -> None:
    noises = [typical(unlike(1, runs, 0.1), unlike(2, runs, 0.1, scale=1.3)) for runs in (2, 4, 8)]
    assert all(noises)
    few, more, many = (change.noise for change in noises if change)
    assert few > more > many
    assert noises[-1] is not None
    assert noises[-1].is_real


def test_a_baseline_of_several_runs_holds_one_run_against_their_spread() -> None:
    change = typical(unlike(1, 5, 0.05), unlike(2, 1, 0.05))
    assert change is not None
    assert 0.08 < change.noise < 0.6
    assert not change.is_real


def test_two_runs_and_one_are_too_few_for_a_spread() -> None:
    steady = [StepBlocks(1, (10 * MS,) * 40), StepBlocks(1, (10 * MS,) * 40)]
    change = typical(steady, [step_times(1, spread=0.2, alike=0.9)])
    assert change is not None
    assert change.noise > 0.05


def test_what_wanders_within_single_runs_counts_double_up_to_a_half() -> None:
    def noise(spread: float, runs: int = 1) -> float:
        sides = [
            [step_times(10 * side + run, spread=spread, alike=0.9) for run in range(runs)] for side in (1, 2)
        ]
        change = typical(*sides)
        assert change is not None
        return change.noise

    assert MIN_NOISE <= noise(0.01) < 0.10
    assert 0.20 < noise(0.08) <= 0.50
    assert noise(0.4) > 0.50
