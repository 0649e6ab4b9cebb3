"""How often a gradient scaler skipped its optimizer, and at which line."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.lines import Line, line_of
from perfwrap.measures.loop_events import SKIPPED
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

UNKNOWN = -1
"""Value of a scaler's step of which it cannot be told whether it was skipped."""


@dataclass(frozen=True)
class ScalerLine:
    """One line that calls ``GradScaler.step``, after the first step that was not skipped, if there was one."""

    where: Line | None
    steps: int
    skipped: int
    skipped_at_first: int
    """Skips before the first step that was taken: the scale starts high on purpose."""
    unknown: bool
    """Whether it cannot be told, since the optimizer decides on the GPU."""


def find_scalers(timeline: Timeline, trainer: Trainer) -> tuple[ScalerLine, ...]:
    """Return the lines of a trainer's thread that step scalers, most skips first."""
    mine = (pl.col("track") == trainer.thread) & (pl.col("operation") == "scaler_step")
    is_skipped = pl.col("name").str.ends_with(SKIPPED).fill_null(False).alias("skipped")
    spans = timeline.spans.filter(mine).select(
        "file", "line", "function", "start", is_skipped, pl.lit(1, pl.Int64).alias("count"), "value"
    )
    sums = timeline.sums.filter(mine).select(
        *("file", "line", "function", "start"), is_skipped, "count", pl.lit(0, pl.Int64).alias("value")
    )
    steps = pl.concat([spans, sums]).sort("start")
    found = [_line(rows) for rows in steps.partition_by("file", "line", maintain_order=True)]
    return tuple(sorted(found, key=lambda line: -line.skipped))


def _line(rows: pl.DataFrame) -> ScalerLine:
    """Return the figures of one line."""
    taken = rows.filter(~pl.col("skipped"))
    since = taken["start"][0] if taken.height else rows["start"][0]
    settled = rows.filter(pl.col("start") >= since)
    return ScalerLine(
        where=line_of(*rows.select("file", "line", "function").row(0)),
        steps=int(settled["count"].sum()),
        skipped=int(settled.filter("skipped")["count"].sum()),
        skipped_at_first=int(rows.filter(pl.col("start") < since)["count"].sum()),
        unknown=bool((rows["value"] == UNKNOWN).any()),
    )
