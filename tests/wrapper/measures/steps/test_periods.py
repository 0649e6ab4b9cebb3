"""Slow steps that come regularly, and those that chance spreads."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import polars as pl
import pytest
from perfwrap.measures.steps.periods import find_period

WARM_UP = 3
CHANCE, REGULAR = 0.01, 0.6


def table(count: int, epoch: int = 0, undetailed: Collection[int] = ()) -> pl.DataFrame:
    """Return so many steady steps behind a warm-up, in epochs of ``epoch`` steps where that is not 0."""
    index = np.arange(WARM_UP + count)
    return pl.DataFrame(
        {
            "index": index,
            "steady": index >= WARM_UP,
            "detailed": [number not in undetailed for number in index.tolist()],
            "epoch": index // epoch if epoch else [None] * index.size,
        },
        schema_overrides={"epoch": pl.Int64},
    )


def period(slow: Iterable[int], steps: pl.DataFrame) -> int | None:
    return find_period(sorted(slow), steps, CHANCE, REGULAR)


@pytest.mark.parametrize("causes", [1, 3])
@pytest.mark.parametrize(("count", "draws"), [(50, 1000), (100, 1000), (300, 500), (1000, 400), (5000, 300)])
def test_random_slow_steps_have_no_period(count: int, draws: int, causes: int) -> None:
    random = np.random.default_rng(count)
    false = 0
    for draw in range(draws):
        steps = table(count, epoch=count // 4 if draw % 2 else 0)
        slow = WARM_UP + np.flatnonzero(random.random(count) < random.uniform(0.01, 0.3))
        cause = random.integers(causes, size=slow.size)
        false += any(period(slow[cause == number].tolist(), steps) for number in range(causes))
    assert false < draws / 100


@pytest.mark.parametrize(
    ("count", "every"), [(50, 5), (100, 10), (300, 50), (500, 50), (600, 100), (5000, 100)]
)
@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_period_is_found_whatever_is_missing_or_added(
    count: int, every: int, missing: int, more: int
) -> None:
    regular = list(range(WARM_UP + every - 2, WARM_UP + count, every))
    extra = [WARM_UP + count // 3, WARM_UP + count // 2 + 1][:more]
    kept = regular[:2] + regular[2 + missing :]
    assert period({*kept, *extra}, table(count)) == every


def test_what_each_epoch_counts_again_is_found_though_epochs_are_no_multiple_of_it() -> None:
    steps = table(380, epoch=95)
    slow = [number for number in range(WARM_UP, 383) if number % 95 % 50 == 1]
    assert period(slow, steps) == 50
    assert period(slow, table(380)) is None


def test_what_begins_each_epoch_comes_as_often_as_epochs() -> None:
    assert period(range(40, 400, 40), table(400, epoch=40)) == 40


def test_a_rhythm_for_a_while_is_no_period() -> None:
    assert period(range(100, 200, 10), table(1000)) is None


def test_a_rhythm_that_does_not_count_steps_is_no_period() -> None:
    random = np.random.default_rng(7)
    slow = np.cumsum(np.round(random.normal(7, 0.5, 100)).astype(int))
    assert np.mean(np.diff(slow) == 7) > REGULAR
    assert period(slow.tolist(), table(700)) is None


def test_steps_without_detail_are_no_gaps_in_a_period() -> None:
    resting = set(range(100, 400)) | set(range(500, 800))
    slow = [number for number in range(10, 1000, 10) if number not in resting]
    assert period(slow, table(1000, undetailed=resting)) == 10


@pytest.mark.parametrize("slow", [[], [5], [5, 15], [5, 15, 25], list(range(3, 53))])
def test_too_few_slow_steps_and_too_many_show_no_period(slow: list[int]) -> None:
    assert period(slow, table(50)) is None
