"""The steady steps in sections of equal size: how the step time changed over the run, in few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.steps.steps import Steps

MAX_SECTIONS = 256
"""Enough means to distinguish a drift from noise, and few enough for a document."""


@dataclass(frozen=True)
class Stretches:
    """Mean step times, in order, each of ``steps`` steps: a power of two, so that two runs can be compared.

    The rest at the end that fills no section is left out.
    """

    steps: int = 1
    mean_ns: tuple[float, ...] = ()


def find_stretches(steps: Steps) -> Stretches:
    """Return the sections of the steady steps.

    Steps without detail count like the others: where each of them ended is unknown, but their total time is known.
    """
    durations = steps.table.filter("steady")["duration"]
    length = 1
    while durations.len() > MAX_SECTIONS * length:
        length *= 2
    whole = durations.head(durations.len() // length * length)
    if whole.is_empty():
        return Stretches()
    grouped = whole.to_frame("duration").group_by(pl.int_range(pl.len()) // length, maintain_order=True)
    return Stretches(length, tuple(grouped.agg(pl.col("duration").mean())["duration"].to_list()))
