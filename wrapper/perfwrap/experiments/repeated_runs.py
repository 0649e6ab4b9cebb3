"""How often the variants of a trial run: until each result is clear, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Sequence

from perfwrap import units
from perfwrap.experiments import judge
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.trial import Trial

MOST_ROUNDS = 12
"""After this many runs of a variant, its interval hardly gets narrower."""

LEAST_RUNS = 4
"""Of a variant and the baseline together: two runs may be alike by chance."""


def measure(trial: Trial, planned: Sequence[Planned], repeats: int | None, end_s: float) -> None:
    """Run the variants in turn, the baseline after each.

    Each runs ``repeats`` times; if that is None, once and then until its result is clear or the monotonic clock would
    pass ``end_s`` before the end of another run.
    """
    if repeats is None:
        _announce(trial, planned, end_s)
    left = list(planned)
    for number in range(repeats or MOST_ROUNDS):
        if trial.interrupted:
            return
        if repeats is None and number:
            left = [one for one in left if not _is_clear(trial, one) and _fits(trial, one, end_s)]
        for one in left:
            if trial.interrupted:
                return
            if repeats is not None or not number or _fits(trial, one, end_s):
                trial.measure([one])


def _announce(trial: Trial, planned: Sequence[Planned], end_s: float) -> None:
    """Say how long the first round takes, if that is longer than the limit."""
    needed_s = 2 * len(planned) * trial.mean_wall_s(BASELINE)
    if needed_s > end_s - time.monotonic():
        times = "one run of it" if len(planned) == 1 else f"one run of each of the {len(planned)} changes"
        trial.progress.says(
            f"{times} and of the unchanged program in between takes about {units.duration(needed_s * 1e9)}, longer "
            "than --max-time"
        )


def _is_clear(trial: Trial, planned: Planned) -> bool:
    """Return whether the result of a variant is clear."""
    baseline, *rows = judge.rows(trial.runs, trial.planned)
    row = next(row for row in rows if row.name == planned.variant.name)
    is_known = row.status != "measured" or row.runs + baseline.runs >= LEAST_RUNS
    return is_known and judge.is_clear(row)


def _fits(trial: Trial, planned: Planned, end_s: float) -> bool:
    """Return whether another run of a variant, and of the baseline, ends in time."""
    needed_s = trial.mean_wall_s(planned.variant.name) + trial.mean_wall_s(BASELINE)
    return time.monotonic() + needed_s <= end_s
