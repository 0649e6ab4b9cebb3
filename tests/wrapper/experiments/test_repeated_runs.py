"""How often variants run; the program is replaced by step times, the trial's own runs and judgement are real."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from perfwrap.experiments import judge, repeated_runs
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.reading import Reading, Steps
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.trial import Run, Trial
from perfwrap.experiments.variants import Variant, parse

HOUR_S = 3600.0


class Silent:
    def __init__(self) -> None:
        self.said: list[str] = []

    def says(self, text: str) -> None:
        self.said.append(text)

    def begins(self, name: str, number: int) -> None: ...

    def ticks(self, seconds: float) -> None: ...

    def ends(self, run: Run) -> None: ...

    def stops(self) -> None: ...


@dataclass
class Simulated(Trial):
    """A trial whose runs take no time: step times are drawn, with a spread between runs."""

    factors: dict[str, float] = field(default_factory=dict)
    spread: float = 0.01
    wall_s: float = 10.0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(4))

    def _run(self, variant: Variant, limit_s: float = 0) -> None:
        name = variant.name
        mean = 1e7 * self.factors.get(name, 1.0) * np.exp(self.random.normal(0, self.spread))
        durations = (mean * np.exp(self.random.normal(0, 0.02, 50))).astype(np.int64)
        measured = Steps(np.arange(10, 60), durations, np.full(50, 8))
        self.runs.append(Run(name, Path("/nowhere"), Reading("measured", steps=measured), self.wall_s))


def simulated(
    factors: dict[str, float], spread: float = 0.01, seed: int = 4
) -> tuple[Simulated, list[Planned]]:
    random = np.random.default_rng(seed)
    trial = Simulated(
        [], Path("/nowhere"), Settings(), Silent(), factors=factors, spread=spread, random=random
    )
    trial._run(Variant(BASELINE))
    return trial, [Planned(parse(name)) for name in factors]


def count(trial: Trial, name: str) -> int:
    return sum(run.name == name for run in trial.runs)


def test_a_clear_gain_takes_fewer_runs_than_an_unclear_one() -> None:
    runs: dict[str, list[int]] = {"workers=2": [], "none": []}
    for seed in range(6):
        trial, planned = simulated({"workers=2": 0.5, "none": 0.96}, 0.02, seed)
        repeated_runs.measure(trial, planned, None, time.monotonic() + HOUR_S)
        for name, counts in runs.items():
            counts.append(count(trial, name))
    assert max(runs["workers=2"]) <= 4
    assert np.mean(runs["none"]) > np.mean(runs["workers=2"])
    assert max(runs["none"]) <= repeated_runs.MOST_ROUNDS


def test_to_look_after_every_run_does_not_make_differences_of_noise() -> None:
    judged = []
    for seed in range(8):
        trial, planned = simulated({"none": 1.0}, 0.03, seed)
        repeated_runs.measure(trial, planned, None, time.monotonic() + HOUR_S)
        judged.append(judge.rows(trial.runs, trial.planned)[1].judgement)
    # With plain 95 % intervals two of these are called different.
    assert judged.count("noise") >= 7


def test_the_limit_ends_repeats_but_each_variant_runs_once() -> None:
    trial, planned = simulated({"none": 0.97, "workers=2": 0.97})
    repeated_runs.measure(trial, planned, None, time.monotonic() - 1)
    assert [count(trial, one.variant.name) for one in planned] == [1, 1]
    assert isinstance(trial.progress, Silent)
    assert trial.progress.said == [
        "one run of each of the 2 changes and of the unchanged program in between takes about 40 s, longer than "
        "--max-time"
    ]


@pytest.mark.parametrize("repeats", [1, 4])
def test_a_given_number_of_repeats_is_what_runs(repeats: int) -> None:
    trial, planned = simulated({"workers=2": 0.5, "none": 1.0})
    repeated_runs.measure(trial, planned, repeats, time.monotonic() - 1)
    assert [count(trial, name) for name in (BASELINE, "workers=2", "none")] == [
        1 + 2 * repeats,
        repeats,
        repeats,
    ]


class Interrupted(Simulated):
    """The user interrupts while the recording of a variant is read."""

    def _run(self, variant: Variant, limit_s: float = 0) -> None:
        if variant.name != BASELINE:
            raise KeyboardInterrupt
        super()._run(variant)


def test_an_interrupt_before_the_first_result_ends_the_repeats() -> None:
    trial = Interrupted([], Path("/nowhere"), Settings(), Silent())
    trial._run(Variant(BASELINE))
    repeated_runs.measure(trial, [Planned(parse("none"))], None, time.monotonic() + HOUR_S)
    assert trial.interrupted
    assert [run.name for run in trial.runs] == [BASELINE]
