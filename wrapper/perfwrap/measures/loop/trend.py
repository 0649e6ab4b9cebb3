"""Whether the time of some code grows compared with the time of other code that should stay constant.

Only the ratio of both counts: a machine that gets slower or faster changes both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.measures.health.growth import MAX_JUMP_SHARE, MIN_LATE_GROWTH, median_slope

Numbers = NDArray[Any]

GROUPS = 12
"""Number of groups into which the loop is divided."""
MIN_GROUPS = 8
"""Minimum number of groups: with fewer, no order of their values is significant."""
MIN_SCORE = 3.0
"""Minimum score of the Mann-Kendall test for a rise, in standard deviations; by chance 1 of 740 series reaches it."""
MIN_FACTOR = 1.5
"""The last quarter must be this many times the first quarter."""
MIN_QUARTER_RISE = 0.2
"""From each quarter to the next the ratio must rise by this share of an even growth; otherwise it has levelled off, or
has jumped."""
MIN_COMPARED_SCORE = 2.5
"""The same for the ratio if the code's own time also rises with MIN_SCORE."""
MIN_OWN_FACTOR = 1.25
"""The last quarter of the code's own time over the first quarter: if the machine gets faster, only the control may do
so, as what other processes rarely interrupt is as fast as before."""
LINEAR_SHARE = 0.85
"""Share of the variance between the groups that a line must explain to be continued."""
MAX_BEND = 2.0
"""The rise in one half over that in the other half up to which the growth is one line."""


class Trend(Struct, frozen=True):
    """A steady rise of the ratio: the fitted line at the start and at the end."""

    first: float
    last: float
    is_linear: bool
    """Whether the growth is clearly linear, so that it may be continued."""


def find_trend(own: Numbers, control: Numbers, min_score: float = MIN_SCORE) -> Trend | None:
    """Return the rise of ``own`` over ``control``, the times of groups in order; None if it is unproven."""
    if own.size < MIN_GROUPS or not (control > 0).all():
        return None
    ratio = own / control
    quarters = np.array(
        [part[0].sum() / part[1].sum() for part in np.array_split(np.array([own, control]), 4, axis=1)]
    )
    rise = float(quarters[-1] - quarters[0])
    if rise <= 0 or quarters[-1] < MIN_FACTOR * quarters[0] or rise_score(ratio) < min_score:
        return None
    if np.diff(quarters).min() < MIN_QUARTER_RISE * rise / 3 or _jumps(ratio):
        return None
    return _fitted(ratio)


def rises(own: Numbers) -> bool:
    """Return whether the times of groups rise by themselves, without a comparison."""
    quarters = [float(part.mean()) for part in np.array_split(own, 4)]
    return quarters[-1] >= MIN_OWN_FACTOR * quarters[0] and rise_score(own) >= MIN_SCORE


def rise_score(values: Numbers) -> float:
    """Return the score of the Mann-Kendall test with its correction for ties: positive if the values rise."""
    size = values.size
    low, high = np.triu_indices(size, 1)
    total = float(np.sign(values[high] - values[low]).sum())
    ties = np.unique(values, return_counts=True)[1]
    variance = (size * (size - 1) * (2 * size + 5) - int((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return (total - math.copysign(1, total)) / math.sqrt(variance) if total and variance > 0 else 0.0


def _jumps(ratio: Numbers) -> bool:
    """Return whether most of the rise is one jump: all values before it are below all values after it."""
    rise = float(ratio.max() - ratio.min())
    steps_up = np.minimum.accumulate(ratio[::-1])[::-1][1:] - np.maximum.accumulate(ratio)[:-1]
    return float(steps_up.max()) > MAX_JUMP_SHARE * rise


def _fitted(ratio: Numbers) -> Trend | None:
    """Return the line through the groups by the median of all slopes (Theil-Sen); None if it stops rising."""
    place = np.arange(ratio.size) + 0.5
    slope = median_slope(place, ratio)
    halves = [median_slope(part[0], part[1]) for part in np.array_split(np.array([place, ratio]), 2, axis=1)]
    if slope <= 0 or halves[1] < MIN_LATE_GROWTH * slope:
        return None
    first = float(np.median(ratio - slope * place))
    missed = float(((ratio - first - slope * place) ** 2).sum()) / float(((ratio - ratio.mean()) ** 2).sum())
    is_even = min(halves) > 0 and max(halves) <= MAX_BEND * min(halves)
    return Trend(max(0.0, first), first + slope * ratio.size, missed <= 1 - LINEAR_SHARE and is_even)
