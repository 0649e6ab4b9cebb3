"""The steady steps in blocks of equal size: how the step time changed over the run, in few numbers."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.steps.steps import Steps

MAX_BLOCKS = 256
"""Enough means to distinguish a drift from noise, and few enough for a document."""


class StepBlocks(Struct, frozen=True):
    """Mean step times, in order, each of ``steps`` steps: a power of two, so that two runs can be compared.

    The rest at the end that fills no block is left out.
    """

    steps: int = 1
    mean_ns: tuple[float, ...] = ()


def find_step_blocks(steps: Steps) -> StepBlocks:
    """Return the blocks of the steady steps.

    Steps without detail count like the others: where each of them ended is unknown, but their total time is known.
    """
    durations = steps.table.filter("steady")["duration"]
    length = 1
    while durations.len() > MAX_BLOCKS * length:
        length *= 2
    whole = durations.head(durations.len() // length * length)
    if whole.is_empty():
        return StepBlocks()
    grouped = whole.to_frame("duration").group_by(pl.int_range(pl.len()) // length, maintain_order=True)
    return StepBlocks(length, tuple(grouped.agg(pl.col("duration").mean())["duration"].to_list()))
