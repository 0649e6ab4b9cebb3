"""What a step takes longer for being recorded in detail.

Found by holding steps in detail against the rests between them, within what the number of records lets expect: both
kinds of steps differ for other reasons, too. That time lies around the recorded events, where otherwise the program's
own Python would seem to run.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

RECORD_NS = 8_000
"""What one span costs the thread that writes it, its probe included, in a real loop with its cold caches: about
60 us for the eight spans of a step of a third of a millisecond."""

HOT_RECORD_NS = 1_000
"""What a span costs that comes right after others of its kind: ``item()`` under perfwrap less ``item()`` without."""

COLD_PER_STEP = 10
"""Spans of a step that are taken for cold; a step with more of them repeats one kind."""

DOUBT = 2.0
"""An estimate may be wrong by this factor."""

ENOUGH_BLOCKS = 6
"""Rests, and blocks of detail, that a measurement wants."""

DRAWS, MOST_BLOCKS = 2_000, 500


def find_detail_ns(
    timeline: Timeline, trainer: Trainer, table: pl.DataFrame, spans: pl.DataFrame, sums: pl.DataFrame
) -> float:
    """Return what recording a steady step in detail likely cost it, nanoseconds; 0 where no recorder was injected.

    ``spans`` and ``sums`` are those of the trainer's thread.
    """
    detailed = table.filter("steady", "detailed")
    if detailed.is_empty() or "reached_by" not in facts_of(timeline, trainer.process):
        return 0.0
    place = np.searchsorted(detailed["end"].to_numpy(), spans["start"].to_numpy(), side="right")
    inside = detailed["start"].to_numpy()[np.minimum(place, detailed.height - 1)] <= spans["start"].to_numpy()
    likely = estimated_ns(np.count_nonzero(inside & (place < detailed.height)) / detailed.height)
    measured = measured_ns(table, sums)
    return likely if measured is None else float(np.clip(measured[1], likely, DOUBT * likely))


def estimated_ns(records: float) -> float:
    """Return what that many spans of a step are likely to cost it."""
    cold = min(records, COLD_PER_STEP)
    return cold * RECORD_NS + (records - cold) * HOT_RECORD_NS


def measured_ns(table: pl.DataFrame, sums: pl.DataFrame) -> tuple[float, float, float] | None:
    """Return what a step in detail takes longer: the low end, likely, and the high end of 95 % of resampled blocks.

    ``table`` are steps (``steps.STEP_COLUMNS``), ``sums`` those of their thread. None without enough rests.
    """
    rests = sums.filter("rest").select("start", "end").unique().sort("start")
    if rests.height < ENOUGH_BLOCKS:
        return None
    steady = table.filter("steady")
    block = np.searchsorted(rests["start"].to_numpy(), steady["end"].to_numpy(), side="left")
    means = (
        steady.with_columns(pl.Series("block", block))
        .group_by("detailed", "block")
        .agg(pl.col("duration").mean(), pl.len())
        .filter(pl.col("len") > 1)
    )
    detail, rest = (means.filter(pl.col("detailed") == flag)["duration"].to_numpy() for flag in (True, False))
    if min(detail.size, rest.size) < ENOUGH_BLOCKS:
        return None
    more = _medians(detail) - _medians(rest)
    low, likely, high = (max(0.0, float(value)) for value in np.percentile(more, [2.5, 50, 97.5]))
    return low, likely, high


def _medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians of resampled values."""
    values = values[:: 1 + values.size // MOST_BLOCKS]
    draws = np.random.default_rng(0).integers(values.size, size=(DRAWS, values.size))
    return np.asarray(np.median(values[draws], axis=1))
