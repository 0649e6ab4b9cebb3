"""The steady steps in stretches of equally many: how the step time went over the run, in few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.steps import Steps

MOST_STRETCHES = 256
"""Enough for means that tell a drift from noise, and few enough for a document."""


@dataclass(frozen=True)
class Stretches:
    """Mean step times, in order: each of so many ``steps``, a power of two, so that two runs can be brought together.

    What is left at the end and fills no stretch is left out.
    """

    steps: int = 1
    mean_ns: tuple[float, ...] = ()


def find_stretches(steps: Steps) -> Stretches:
    """Return the stretches of the steady steps.

    Steps whose detail was thinned away count with the others: where each of them ended is not known, how long they
    took together is.
    """
    durations = steps.table.filter("steady")["duration"]
    length = 1
    while durations.len() > MOST_STRETCHES * length:
        length *= 2
    whole = durations.head(durations.len() // length * length)
    if whole.is_empty():
        return Stretches()
    grouped = whole.to_frame("duration").group_by(pl.int_range(pl.len()) // length, maintain_order=True)
    return Stretches(length, tuple(grouped.agg(pl.col("duration").mean())["duration"].to_list()))
