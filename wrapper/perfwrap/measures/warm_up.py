"""Where the warm-up of a loop ends: a change-point in the steps' durations, never a fixed count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1.5
"""A step within this factor of the median is an ordinary one, however quiet the others are: a machine that is
shared drifts by as much, and what warms up (autotuning, compiling, a queue that was filled ahead) takes far
more or less."""
EXTREME = 0.1
"""Ordinary steps lie between these quantiles of the later half (from below and from above)."""


MANY_STEPS = 30
"""From so many steps on a warm-up must have ended within the first third: a level that lasts longer is no
transient but a change of the machine or of the work."""


def warm_up_length(durations: NDArray[np.int64]) -> int:
    """Return how many steps at the beginning belong to the warm-up, at most half of them.

    The later half says what is ordinary. Steps outside of that are far likelier in the warm-up than
    afterwards, by the same factor for all, so the likeliest change-point is where unusual steps lead over
    ordinary ones by most (a CUSUM of +1 and -1). Single slow steps later on do not move it, however slow
    they are. Where the beginning never comes to the level of the later half, it is judged by itself.
    """
    if durations.size < 2:
        return 0
    later = durations[durations.size // 2 :]
    middle = float(np.median(later))
    high = max(float(np.quantile(later, 1 - EXTREME)), middle * TOLERANCE)
    low = min(float(np.quantile(later, EXTREME)), middle / TOLERANCE)
    many = durations.size >= MANY_STEPS
    early = durations[: durations.size // (3 if many else 2)]
    lead = np.cumsum(np.where((early > high) | (early < low), 1, -1))
    best = int(np.argmax(lead))
    if many and best == early.size - 1:
        return warm_up_length(early)
    return best + 1 if lead[best] > 0 else 0
