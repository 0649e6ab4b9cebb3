"""Where a training loop ends: with its last step, or with what also followed steps before."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.loop_events import Integers
from perfwrap.measures.phases import Phases

UNASKED = ("gc", "perfwrap")
"""Operations that nobody called, so that they tell nothing about the loop."""


def find_loop_end(spans: pl.DataFrame, phases: Phases, first: int, ends: Integers) -> int:
    """Return the end of the loop whose first step starts at ``first`` and whose steps end at ``ends``.

    A validation, a checkpoint or the end of an epoch after the last step belongs to the loop when the loop
    held the like between two steps. The first event that it never held (the final test, the final save) is
    outside.
    """
    end = last = int(ends[-1])
    asked = spans.filter(~pl.col("operation").is_in(UNASKED)).select(
        "start", (pl.col("start") + pl.col("duration")).alias("end"), "operation", "file", "line"
    )
    inside = asked.filter(pl.col("start").is_between(first, last, closed="left"))
    held = set(inside.select("operation", "file", "line").unique().iter_rows())
    validations = _most_in_a_row(phases, ends)
    phase_ends = dict(zip(phases.start.tolist(), phases.end.tolist(), strict=True))
    for start, until, *kind in asked.filter(pl.col("start") >= last).iter_rows():
        if start < end:
            continue
        if start in phase_ends:
            if validations == 0:
                break
            validations -= 1
            end = phase_ends[start]
        elif tuple(kind) in held:
            end = max(end, until)
        else:
            break
    return end


def _most_in_a_row(phases: Phases, ends: Integers) -> int:
    """Return how many validation phases followed each other between two steps, at most."""
    gaps = np.searchsorted(ends, phases.start, side="right")
    between = gaps[(gaps > 0) & (gaps < ends.size)]
    return int(np.bincount(between).max(initial=0)) if between.size else 0
