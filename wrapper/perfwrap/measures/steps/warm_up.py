"""Where the warm-up of a loop ends: a change point in the step durations, not a fixed count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1.5
"""A step within this factor of the median is normal, however regular the others are: a shared machine drifts by as
much, and warm-up effects (autotuning, compiling, a queue that was filled ahead) are much larger."""
EXTREME_SHARE = 0.1
"""Normal steps are between these quantiles of the later half (from below and from above)."""


MANY_STEPS = 30
"""With at least this many steps the warm-up must end within the first third: a level that lasts longer is a change of
the machine or of the work."""


def warm_up_length(durations: NDArray[np.int64]) -> int:
    """Return how many steps at the start belong to the warm-up, at most half of them.

    The later half defines what is normal. Other steps are much more likely in the warm-up than afterwards, by the same
    factor for all, so the most likely change point is where unusual steps outnumber normal ones the most (a CUSUM of +1
    and -1). Single slow steps later do not shift it, however slow they are. If the start never reaches the level of the
    later half, it is judged by itself.
    """
    if durations.size < 2:
        return 0
    later = durations[durations.size // 2 :]
    middle = float(np.median(later))
    high = max(float(np.quantile(later, 1 - EXTREME_SHARE)), middle * TOLERANCE)
    low = min(float(np.quantile(later, EXTREME_SHARE)), middle / TOLERANCE)
    many = durations.size >= MANY_STEPS
    early = durations[: durations.size // (3 if many else 2)]
    lead = np.cumsum(np.where((early > high) | (early < low), 1, -1))
    best = int(np.argmax(lead))
    if many and best == early.size - 1:
        return warm_up_length(early)
    return best + 1 if lead[best] > 0 else 0
