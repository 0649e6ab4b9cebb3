"""Whether a GPU's utilization swings between low and high: the sawtooth of a GPU that waits."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

LOW, HIGH = 0.30, 0.70
"""A sample below or above is in that state; values in between keep the previous state."""


class Swings(Struct, frozen=True):
    """How often utilization rose from LOW to HIGH, and the share of the samples in each state."""

    count: int
    low_share: float
    high_share: float
    period_ns: float


def find_swings(samples: pl.DataFrame) -> Swings | None:
    """Return the swings of a series of time and value, sorted by time; None if there are none."""
    if samples.height < 2:
        return None
    state = (
        pl.when(pl.col("value") <= LOW).then(0).when(pl.col("value") >= HIGH).then(1).forward_fill()
    ).alias("state")
    known = samples.with_columns(state).drop_nulls("state")
    rises = known.filter((pl.col("state") == 1) & (pl.col("state").shift(1) == 0))
    if rises.is_empty():
        return None
    length = int(samples["time"][-1] - samples["time"][0])
    low = int((samples["value"] <= LOW).sum()) / samples.height
    high = int((samples["value"] >= HIGH).sum()) / samples.height
    return Swings(rises.height, low, high, length / rises.height)
