"""Steps of a program without marks: its sequence of kernel launches repeats."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.steps.step_ends import StepEnds
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

MIN_PERIOD = 8
"""In kernels; a shorter pattern is a loop inside a step."""
MAX_PERIOD = 20_000
MIN_KINDS = 4
"""Different kernels in a step; fewer repeat by chance."""
MIN_REPEATS = 3
MIN_EQUAL_SHARE = 0.95
"""Share of the kernels that must be equal one period earlier; a changed shape sometimes selects another kernel."""
MAX_LAUNCHES = 100_000


def periodic_steps(timeline: Timeline, trainer: Trainer) -> StepEnds | None:
    """Return where the repetitions of a trainer's launches end; None if there are none.

    A repetition starts after the longest pause that occurs once in each: where the host waits for its next batch.
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

    From all its threads: a backward pass launches from its own.
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
    return joined.head(MAX_LAUNCHES).with_columns(pl.col("kernel").rank("dense"))


def _period(kernels: Integers) -> int | None:
    """Return after how many kernels the sequence repeats, None if it does not."""
    longest = min(MAX_PERIOD, kernels.size // MIN_REPEATS)
    if longest < MIN_PERIOD or np.unique(kernels).size < MIN_KINDS:
        return None
    # A period is only possible where the rarest kernel of the last part occurs again.
    values, counts = np.unique(kernels[-longest:], return_counts=True)
    rarest = np.flatnonzero(kernels == values[np.argmin(counts)])
    for lag in np.unique(rarest[-1] - rarest[:-1])[:200].tolist():
        if MIN_PERIOD <= lag <= longest and np.mean(kernels[lag:] == kernels[:-lag]) >= MIN_EQUAL_SHARE:
            return int(lag) if np.unique(kernels[-lag:]).size >= MIN_KINDS else None
    return None


def _first(start: Integers, end: Integers, period: int, repeats: int) -> int:
    """Return the launch that starts the first repetition: after the position with the longest pauses."""
    pauses = np.append(0, start[1:] - end[:-1])[: repeats * period].reshape(repeats, period)
    return int(np.argmax(np.median(pauses, axis=0)))
