"""The extra time of a step because it is recorded in detail.

Found by comparing detailed steps with the steps while recording was paused, limited by what the number of records
suggests, because both kinds of steps also differ for other reasons. This time is around the recorded events and would
otherwise count as the program's own Python.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

RECORD_NS = 8_000
"""Cost of one span for the thread that writes it, including its probe, in a real loop with cold caches: about 60 µs for
the eight spans of a step of 0.3 ms."""

HOT_RECORD_NS = 1_000
"""Cost of a span right after others of its kind: ``item()`` with perfwrap minus ``item()`` without."""

COLD_PER_STEP = 10
"""Spans of a step that count as cold; a step with more of them repeats one kind."""

MAX_ERROR_FACTOR = 2.0
"""An estimate may be wrong by this factor."""

MIN_BLOCKS = 6
"""Pauses, and blocks of detail, that a measurement needs."""

DRAWS, MAX_BLOCKS = 2_000, 500


def find_detail_ns(
    timeline: Timeline, trainer: Trainer, table: pl.DataFrame, spans: pl.DataFrame, sums: pl.DataFrame
) -> float:
    """Return the estimated cost of recording a steady step in detail, nanoseconds; 0 without an injected recorder.

    ``spans`` and ``sums`` are those of the trainer's thread.
    """
    detailed = table.filter("steady", "detailed")
    if detailed.is_empty() or "reached_by" not in facts_of(timeline, trainer.process):
        return 0.0
    place = np.searchsorted(detailed["end"].to_numpy(), spans["start"].to_numpy(), side="right")
    inside = detailed["start"].to_numpy()[np.minimum(place, detailed.height - 1)] <= spans["start"].to_numpy()
    likely = estimated_ns(np.count_nonzero(inside & (place < detailed.height)) / detailed.height)
    measured = measured_ns(table, sums)
    return likely if measured is None else float(np.clip(measured[1], likely, MAX_ERROR_FACTOR * likely))


def estimated_ns(records: float) -> float:
    """Return the estimated cost of this number of spans in a step."""
    cold = min(records, COLD_PER_STEP)
    return cold * RECORD_NS + (records - cold) * HOT_RECORD_NS


def measured_ns(table: pl.DataFrame, sums: pl.DataFrame) -> tuple[float, float, float] | None:
    """Return the extra time of a detailed step: lower end, estimate, and upper end of 95 % of resampled blocks.

    ``table`` are steps (``steps.STEP_COLUMNS``), ``sums`` those of their thread. None without enough pauses.
    """
    pauses = sums.filter("rest").select("start", "end").unique().sort("start")
    if pauses.height < MIN_BLOCKS:
        return None
    steady = table.filter("steady")
    block = np.searchsorted(pauses["start"].to_numpy(), steady["end"].to_numpy(), side="left")
    means = (
        steady.with_columns(pl.Series("block", block))
        .group_by("detailed", "block")
        .agg(pl.col("duration").mean(), pl.len())
        .filter(pl.col("len") > 1)
    )
    detail, paused = (
        means.filter(pl.col("detailed") == flag)["duration"].to_numpy() for flag in (True, False)
    )
    if min(detail.size, paused.size) < MIN_BLOCKS:
        return None
    more = _medians(detail) - _medians(paused)
    low, likely, high = (max(0.0, float(value)) for value in np.percentile(more, [2.5, 50, 97.5]))
    return low, likely, high


def _medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians of resampled values."""
    values = values[:: 1 + values.size // MAX_BLOCKS]
    draws = np.random.default_rng(0).integers(values.size, size=(DRAWS, values.size))
    return np.asarray(np.median(values[draws], axis=1))
