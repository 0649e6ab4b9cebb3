"""Whether a series of samples grows and goes on growing, told so that single peaks do not matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

LEAST_SAMPLES = 6
LEAST_NS = 4_000_000_000
"""A shorter time says nothing of growth: caches and pools still fill."""
MOST_PIECES = 60
"""The time is cut into at most so many pieces, and the least value of each counts: peaks within steps do not."""
GOES_ON = 0.3
"""From the first third to the second, and from that to the last, the series must rise by this part of what an even
growth would; else it has levelled off, as pools and caches do."""
MOST_AT_ONCE = 0.5
"""When more than this part of the growth came from one sample to the next, it is a jump and no growth."""


@dataclass(frozen=True)
class Growth:
    """A steady rise; ``total`` is that of the fitted line, in the unit of the samples."""

    first: float
    """The fitted line at the beginning."""
    total: float
    per_s: float


def enough(samples: pl.DataFrame, start: int, end: int) -> bool:
    """Say whether the samples in [start, end] can tell of growth at all."""
    inside = samples.filter(pl.col("time").is_between(start, end))["time"]
    return inside.len() >= LEAST_SAMPLES and int(inside[-1]) - int(inside[0]) >= LEAST_NS


def find_growth(samples: pl.DataFrame, start: int, end: int) -> Growth | None:
    """Return the growth of a series in [start, end] by the median of all slopes (Theil and Sen).

    None where it does not grow, does not go on growing, or where there are too few samples.
    """
    if not enough(samples, start, end):
        return None
    inside = samples.filter(pl.col("time").is_between(start, end)).sort("time")
    first, last = int(inside["time"][0]), int(inside["time"][-1])
    pieces = min(MOST_PIECES, inside.height)
    piece = ((pl.col("time") - first) * pieces // (last - first + 1)).alias("piece")
    least = inside.sort("value").group_by(piece).first().sort("time")
    time = (least["time"].to_numpy() - first) / 1e9
    value = least["value"].to_numpy()
    if time.size < LEAST_SAMPLES:
        return None
    slope = median_slope(time, value)
    total = slope * float(time[-1] - time[0])
    thirds = [float(np.median(third)) for third in np.array_split(value, 3)]
    rises = np.diff(thirds)
    is_jump = float(np.diff(value).max()) > MOST_AT_ONCE * total
    if slope <= 0 or is_jump or rises.min() < GOES_ON * total / 3:
        return None
    return Growth(float(np.median(value - slope * time)), total, slope)


def median_slope(time: NDArray[Any], value: NDArray[Any]) -> float:
    """Return the median of the slopes between all pairs of points (Theil and Sen); times must differ."""
    low, high = np.triu_indices(time.size, 1)
    return float(np.median((value[high] - value[low]) / (time[high] - time[low])))
