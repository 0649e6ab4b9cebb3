from __future__ import annotations

import numpy as np
import pytest
from perfwrap.experiments.statistics import Ratio, TimedRun, ratio, run_spread

STEPS = 60


def runs(
    order: str,
    random: np.random.Generator,
    run: float,
    step: float,
    true: float,
    every: int = 0,
    drift: float = 0,
) -> list[TimedRun]:
    """Return runs of 10 ms steps: ``run`` and ``step`` are the spreads of their logarithms, B's factor is ``true``."""
    made = []
    for place, name in enumerate(order):
        mean = 1e7 * (true if name == "B" else 1.0) * np.exp(random.normal(0, run) + drift * place)
        steps = mean * np.exp(random.normal(0, step, STEPS))
        if every:
            steps[every - 1 :: every] *= 5
        made.append(TimedRun(name, steps))
    return made


def found(turns: list[TimedRun], name: str = "B") -> Ratio:
    result = ratio(turns, name, "A")
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("order", "run", "step", "every"),
    [
        ("ABABA", 0.01, 0.05, 0),
        ("ABABA", 0.03, 0.02, 0),
        ("ABABA", 0.0, 0.05, 0),
        ("ABABA", 0.01, 0.05, 10),
        ("ABACADAEA", 0.02, 0.05, 0),
    ],
)
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(
    order: str, run: float, step: float, every: int
) -> None:
    random = np.random.default_rng(5)
    results = [found(runs(order, random, run, step, 0.8, every)) for _ in range(120)]
    held = sum((one.low or 9) <= 0.8 <= (one.high or 0) for one in results)
    # 114 of 120 are expected; fewer than 106 come by chance once in 200 times.
    assert held >= 106
    # An interval that always holds it because it is endless is of no use.
    spread = run + step / np.sqrt(STEPS)
    assert np.median([(one.high or 9) / (one.low or 1) - 1 for one in results]) < 14 * spread


def test_runs_of_the_same_are_hardly_ever_called_different() -> None:
    random = np.random.default_rng(6)
    results = [found(runs("ABABA", random, 0.02, 0.05, 1.0)) for _ in range(120)]
    assert sum(not (one.low or 9) <= 1.0 <= (one.high or 0) for one in results) <= 14


def test_a_machine_that_drifts_is_taken_out() -> None:
    random = np.random.default_rng(7)
    results = [found(runs("ABABABA", random, 0.0, 0.02, 1.0, drift=0.05)).value for _ in range(20)]
    assert np.mean(results) == pytest.approx(1.0, abs=0.005)


def test_without_a_repeat_there_is_a_ratio_but_no_interval() -> None:
    turns = runs("AB", np.random.default_rng(8), 0.0, 0.01, 0.5)
    assert found(turns).value == pytest.approx(0.5, rel=0.02)
    assert (found(turns).low, found(turns).high) == (None, None)


def test_what_was_not_measured_has_no_ratio() -> None:
    turns = runs("ABA", np.random.default_rng(9), 0.0, 0.01, 0.5)
    assert ratio(turns, "C", "A") is None
    assert ratio(turns[1:2], "B", "A") is None


def test_what_comes_back_every_ten_steps_counts_and_widens_nothing() -> None:
    random = np.random.default_rng(10)
    plain, periodic = (found(runs("ABABA", random, 0.0, 0.001, 0.8, every)) for every in (0, 10))
    assert periodic.value == pytest.approx(0.8, rel=0.01)
    assert (periodic.high or 9) - (periodic.low or 0) < 0.02 + (plain.high or 9) - (plain.low or 0)
    checkpoints = runs("A", random, 0.0, 0.001, 1.0, 10) + runs("B", random, 0.0, 0.001, 1.0) * 2
    mended = found([checkpoints[0], checkpoints[1], checkpoints[0], checkpoints[2], checkpoints[0]])
    assert mended.value == pytest.approx(1 / 1.4, rel=0.01)


def test_the_interval_is_the_same_each_time_it_is_worked_out() -> None:
    turns = runs("ABABA", np.random.default_rng(11), 0.02, 0.1, 0.9)
    assert found(turns) == found(turns)


def test_one_step_a_run_and_steps_all_alike_are_no_error() -> None:
    alike = [TimedRun(name, np.full(7, 100.0)) for name in "ABABA"]
    assert found(alike) == Ratio(1.0, 1.0, 1.0)
    single = [TimedRun(name, np.array([100.0])) for name in "ABABA"]
    assert found(single).value == 1.0
    assert run_spread(alike) == (0.0, 3)


def test_a_run_of_many_thousand_steps_is_summed_up_without_moving_its_mean() -> None:
    steps = np.random.default_rng(12).exponential(1e6, 50_000)
    turns = [TimedRun(name, steps) for name in "ABABA"]
    result = found(turns)
    assert result.value == pytest.approx(1.0)
    assert (result.high or 9) - (result.low or 0) < 0.05
