"""How often a gradient scaler skipped its optimizer, and at which line."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_events import SKIPPED
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer

UNKNOWN = -1
"""Value of a scaler step for which it is unknown whether it was skipped."""


class ScalerLine(Struct, frozen=True):
    """One line that calls ``GradScaler.step``, after the first step that was not skipped, if any."""

    where: Line | None
    steps: int
    skipped: int
    skipped_at_first: int
    """Skips before the first step that was not skipped: the scale starts high on purpose."""
    unknown: bool
    """Whether the number is unknown, because the optimizer decides on the GPU."""


def find_scalers(evidence: Evidence, trainer: Trainer) -> tuple[ScalerLine, ...]:
    """Return the lines of a trainer's thread that step scalers, most skips first."""
    mine = (pl.col("track") == trainer.thread) & (pl.col("operation") == "scaler_step")
    is_skipped = pl.col("name").str.ends_with(SKIPPED).fill_null(False).alias("skipped")
    spans = evidence.timeline.spans.filter(mine).select(
        "file", "line", "function", "start", is_skipped, pl.lit(1, pl.Int64).alias("count"), "value"
    )
    sums = evidence.timeline.sums.filter(mine).select(
        *("file", "line", "function", "start"), is_skipped, "count", pl.lit(0, pl.Int64).alias("value")
    )
    steps = pl.concat([spans, sums]).sort("start")
    found = [_line(rows) for rows in steps.partition_by("file", "line", maintain_order=True)]
    return tuple(sorted(found, key=lambda line: -line.skipped))


def _line(rows: pl.DataFrame) -> ScalerLine:
    """Return the figures of one line."""
    taken = rows.filter(~pl.col("skipped"))
    since = taken["start"][0] if taken.height else rows["start"][0]
    counted = rows.filter(pl.col("start") >= since)
    return ScalerLine(
        where=line_of(*rows.select("file", "line", "function").row(0)),
        steps=int(counted["count"].sum()),
        skipped=int(counted.filter("skipped")["count"].sum()),
        skipped_at_first=int(rows.filter(pl.col("start") < since)["count"].sum()),
        unknown=bool((rows["value"] == UNKNOWN).any()),
    )
