"""Steps of a program that marks none: the sequence of kernels that it launches repeats itself."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.loop_events import Integers
from perfwrap.measures.step_ends import StepEnds
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

LEAST_PERIOD = 8
"""Kernels; a shorter pattern is a loop inside of a step."""
LONGEST_PERIOD = 20_000
LEAST_KINDS = 4
"""Different kernels of a step; fewer repeat by chance."""
LEAST_REPEATS = 3
ALIKE = 0.95
"""Share of the kernels that are the same as one period before; a shape that changes picks another kernel now and
then."""
MOST_LAUNCHES = 100_000


def periodic_steps(timeline: Timeline, trainer: Trainer) -> StepEnds | None:
    """Return where the repetitions end that a trainer's launches show; None when they show none.

    A repetition begins behind the longest pause that comes once in each: where the host waits for its next batch.
    """
    launches = _launches(timeline, trainer)
    period = _period(launches["kernel"].to_numpy().astype(np.int64))
    if period is None:
        return None
    start = launches["start"].to_numpy()
    ends = start + launches["duration"].to_numpy()
    repeats = start.size // period
    first = _first(start, ends, period, repeats)
    begins = start[first::period]
    last = first + (begins.size - 1) * period
    whole = last + period <= start.size
    finish = [ends[last + period - 1]] if whole else []
    found = np.append(begins[1:], finish).astype(np.int64)
    return StepEnds(found, int(begins[0]), f"repetition of its {period} kernel launches", ("kernel",))


def _launches(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the calls of a trainer's process that launched kernels, each with its kernel as a number.

    Of all its threads: a backward pass launches from its own.
    """
    tracks = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent") == trainer.process)
    kernels = timeline.spans.filter(pl.col("category") == "kernel").select(
        "link", pl.col("name").alias("kernel")
    )
    calls = timeline.spans.filter(
        pl.col("track").is_in(tracks["id"].to_list()),
        pl.col("link").is_not_null(),
        pl.col("category") == "other",
    )
    joined = calls.select("start", "duration", "link").join(kernels.unique("link"), on="link").sort("start")
    return joined.head(MOST_LAUNCHES).with_columns(pl.col("kernel").rank("dense"))


def _period(kernels: Integers) -> int | None:
    """Return after how many kernels the sequence repeats itself, None when it does not."""
    longest = min(LONGEST_PERIOD, kernels.size // LEAST_REPEATS)
    if longest < LEAST_PERIOD or np.unique(kernels).size < LEAST_KINDS:
        return None
    # Only where the rarest kernel of the last part comes again can a period lie.
    values, counts = np.unique(kernels[-longest:], return_counts=True)
    rarest = np.flatnonzero(kernels == values[np.argmin(counts)])
    for lag in np.unique(rarest[-1] - rarest[:-1])[:200].tolist():
        if LEAST_PERIOD <= lag <= longest and np.mean(kernels[lag:] == kernels[:-lag]) >= ALIKE:
            return int(lag) if np.unique(kernels[-lag:]).size >= LEAST_KINDS else None
    return None


def _first(start: Integers, end: Integers, period: int, repeats: int) -> int:
    """Return the launch that begins the first repetition: behind the place with the longest pauses."""
    pauses = np.append(0, start[1:] - end[:-1])[: repeats * period].reshape(repeats, period)
    return int(np.argmax(np.median(pauses, axis=0)))
