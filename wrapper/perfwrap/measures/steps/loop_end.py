"""Where a training loop ends: at its last step, or after what also followed earlier steps."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.steps.phases import Phases

INTERRUPTIONS = ("gc", "perfwrap")
"""Operations that the program did not call, so they say nothing about the loop."""


def find_loop_end(spans: pl.DataFrame, phases: Phases, first: int, ends: Integers) -> int:
    """Return the end of the loop whose first step starts at ``first`` and whose steps end at ``ends``.

    A validation, a checkpoint or the end of an epoch after the last step belongs to the loop if the same occurred
    between two steps. The first event that did not (the final test, the final save) is outside.
    """
    end = last = int(ends[-1])
    asked = spans.filter(~pl.col("operation").is_in(INTERRUPTIONS)).select(
        "start", (pl.col("start") + pl.col("duration")).alias("end"), "operation", "file", "line"
    )
    inside = asked.filter(pl.col("start").is_between(first, last, closed="left"))
    held = set(inside.select("operation", "file", "line").unique().iter_rows())
    validations = _max_consecutive(phases, ends)
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


def _max_consecutive(phases: Phases, ends: Integers) -> int:
    """Return the maximum number of consecutive validation phases between two steps."""
    gaps = np.searchsorted(ends, phases.start, side="right")
    between = gaps[(gaps > 0) & (gaps < ends.size)]
    return int(np.bincount(between).max(initial=0)) if between.size else 0
