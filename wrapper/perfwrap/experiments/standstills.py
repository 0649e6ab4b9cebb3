"""Removes pauses of the machine, one of which would dominate a mean.

A checkpoint or the start of an epoch is at the same step in every run. A step that is long in one run only, and far
longer than the same step of all others, is caused by the machine: suspended, moved, or used by other programs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from perfwrap.experiments.reading import Steps

STANDSTILL = 10.0
"""The factor over the run's median and over the same step of any other run. A garbage collection, a slow sample or a
burst of other programs' work stays below, and counts."""

NEAR = 1
"""Periodic work may be a step earlier or later in another run."""


def without_standstills(runs: Sequence[Steps]) -> list[Steps]:
    """Return the runs with such steps replaced by the median step; a single run is not changed."""
    if len(runs) < 2:
        return list(runs)
    longest: list[dict[int, int]] = [_longest_near(steps) for steps in runs]
    return [
        _repaired(steps, [other for number, other in enumerate(longest) if number != place])
        for place, steps in enumerate(runs)
    ]


def _repaired(steps: Steps, others: Sequence[dict[int, int]]) -> Steps:
    """Return one run without the pauses that no other run has."""
    median = float(np.median(steps.duration_ns))
    duration = steps.duration_ns.copy()
    for place in np.flatnonzero(duration > STANDSTILL * median).tolist():
        number = int(steps.number[place])
        same = [other[number] for other in others if number in other]
        if same and duration[place] > STANDSTILL * max(same):
            duration[place] = round(median)
    return replace(steps, duration_ns=duration)


def _longest_near(steps: Steps) -> dict[int, int]:
    """Return the duration of each step by its number, or that of its neighbour if longer."""
    found: dict[int, int] = {}
    for number, duration in zip(steps.number.tolist(), steps.duration_ns.tolist(), strict=True):
        for near in range(number - NEAR, number + NEAR + 1):
            found[near] = max(found.get(near, 0), duration)
    return found
