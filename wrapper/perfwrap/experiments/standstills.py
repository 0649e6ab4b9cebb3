"""Takes out the moments in which the machine stood still: one would decide a mean, and the program has no part in it.

A checkpoint or the start of an epoch stands at the same step in every run. What only one run has, and what is far
longer than the same step of all others, is the machine's: suspended, moved, or given to somebody else for seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perfwrap.experiments.reading import Steps

STANDSTILL = 10.0
"""So many times as long as the run's median and as the same step of any other run. A collection of garbage, a slow
sample or a burst of other programs' work stays below, and counts."""

NEAR = 1
"""What comes back may stand a step earlier or later in another run."""


def without_standstills(runs: Sequence[Steps]) -> list[Steps]:
    """Return the runs, each with such steps as long as its median step; a single run stays as it is."""
    if len(runs) < 2:
        return list(runs)
    longest: list[dict[int, int]] = [_longest_near(steps) for steps in runs]
    return [
        _repaired(steps, [other for number, other in enumerate(longest) if number != place])
        for place, steps in enumerate(runs)
    ]


def _repaired(steps: Steps, others: Sequence[dict[int, int]]) -> Steps:
    """Return one run without the standstills that no other run has."""
    median = float(np.median(steps.duration_ns))
    duration = steps.duration_ns.copy()
    for place in np.flatnonzero(duration > STANDSTILL * median).tolist():
        number = int(steps.number[place])
        same = [other[number] for other in others if number in other]
        if same and duration[place] > STANDSTILL * max(same):
            duration[place] = round(median)
    return replace(steps, duration_ns=duration)


def _longest_near(steps: Steps) -> dict[int, int]:
    """Return by its number how long each step took, or its neighbour where that took longer."""
    found: dict[int, int] = {}
    for number, duration in zip(steps.number.tolist(), steps.duration_ns.tolist(), strict=True):
        for near in range(number - NEAR, number + NEAR + 1):
            found[near] = max(found.get(near, 0), duration)
    return found
