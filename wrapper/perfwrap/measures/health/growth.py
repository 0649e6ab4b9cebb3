"""Whether a series of samples keeps growing; single peaks do not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

MIN_SAMPLES = 6
MIN_TIME_NS = 4_000_000_000
"""A shorter time says nothing about growth: caches and pools are still filling."""
MAX_PIECES = 60
"""Maximum number of pieces of the time; the minimum of each counts, so peaks within steps do not matter."""
MIN_LATE_GROWTH = 0.3
"""From each third to the next the series must rise by this share of an even growth; otherwise it has levelled off, as
pools and caches do."""
MAX_JUMP_SHARE = 0.5
"""If more than this share of the growth is between two samples, it is a jump and not growth."""


class Growth(Struct, frozen=True):
    """A steady rise; ``total`` is that of the fitted line, in the unit of the samples."""

    first: float
    """The fitted line at the start."""
    total: float
    per_s: float


def enough(samples: pl.DataFrame, start: int, end: int) -> bool:
    """Return whether the samples in [start, end] are enough to see growth."""
    inside = samples.filter(pl.col("time").is_between(start, end))["time"]
    return inside.len() >= MIN_SAMPLES and int(inside[-1]) - int(inside[0]) >= MIN_TIME_NS


def find_growth(samples: pl.DataFrame, start: int, end: int) -> Growth | None:
    """Return the growth of a series in [start, end] by the median of all slopes (Theil-Sen).

    None if it does not grow, stops growing, or has too few samples.
    """
    if not enough(samples, start, end):
        return None
    inside = samples.filter(pl.col("time").is_between(start, end)).sort("time")
    first, last = int(inside["time"][0]), int(inside["time"][-1])
    pieces = min(MAX_PIECES, inside.height)
    piece = ((pl.col("time") - first) * pieces // (last - first + 1)).alias("piece")
    least = inside.sort("value").group_by(piece).first().sort("time")
    time = (least["time"].to_numpy() - first) / 1e9
    value = least["value"].to_numpy()
    if time.size < MIN_SAMPLES:
        return None
    slope = median_slope(time, value)
    total = slope * float(time[-1] - time[0])
    thirds = [float(np.median(third)) for third in np.array_split(value, 3)]
    rises = np.diff(thirds)
    is_jump = float(np.diff(value).max()) > MAX_JUMP_SHARE * total
    if slope <= 0 or is_jump or rises.min() < MIN_LATE_GROWTH * total / 3:
        return None
    return Growth(float(np.median(value - slope * time)), total, slope)


def median_slope(time: NDArray[Any], value: NDArray[Any]) -> float:
    """Return the median of the slopes between all pairs of points (Theil-Sen); times must differ."""
    low, high = np.triu_indices(time.size, 1)
    return float(np.median((value[high] - value[low]) / (time[high] - time[low])))
