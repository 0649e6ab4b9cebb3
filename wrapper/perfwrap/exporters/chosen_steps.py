"""A few steps with their phases: the slowest ones and typical ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
import polars as pl

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.exporters.export_model import ChosenStep, Phase
from perfwrap.timeline.clocks import HostClock
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.notebook_cells import at_line

MAX_OF_A_KIND = 5
"""The number of slow steps, and of typical ones."""
MAX_PHASES = 40
"""The maximum number of phases of one step, the longest ones."""
PHASES = (
    *("data", "transfer", "forward", "backward", "recompute", "optimizer", "sync"),
    *("checkpoint", "validation", "collective", "compile", "gc", "profiler"),
)
"""Categories that are exported as phases of a step."""


def choose_steps(diagnosis: Diagnosis, timeline: Timeline, clock: HostClock) -> tuple[ChosenStep, ...]:
    """Return the slowest and the most typical steady steps of the main trainer, by time."""
    # The main trainer: the lowest rank, or else the one with the most steps.
    tables = list(zip(diagnosis.ranks, diagnosis.step_tables.items(), strict=False))
    if not tables:
        return ()
    first = tables[0] if tables[0][0].rank is not None else max(tables, key=lambda one: one[0].steps)
    thread, table = first[1]
    steps = table.filter("steady", "detailed")
    middle = steps["duration"].median()
    typical = steps.sort((pl.col("duration") - middle).abs(), "index").head(MAX_OF_A_KIND)
    slow = steps.sort("duration", descending=True).head(MAX_OF_A_KIND)
    rows = pl.concat(
        [typical.with_columns(pl.lit("typical").alias("why")), slow.with_columns(pl.lit("slow").alias("why"))]
    ).unique("index", keep="first")
    spans = timeline.spans.filter(pl.col("track") == thread, pl.col("category").cast(pl.String).is_in(PHASES))
    chosen = rows.sort("index").select("index", "why", "start", "end")
    return tuple(_step(row, spans, clock) for row in chosen.iter_rows())


def _step(row: tuple[Any, ...], spans: pl.DataFrame, clock: HostClock) -> ChosenStep:
    """Return one step with its phases."""
    number, why, start, end = row
    began, ended = clock.to_wall(np.array([start, end])).tolist()
    return ChosenStep(number, why, began, ended, tuple(_phases(spans, start, end, clock)))


def _phases(spans: pl.DataFrame, start: int, end: int, clock: HostClock) -> Iterator[Phase]:
    """Yield the phases in a step, by time."""
    finish = (pl.col("start") + pl.col("duration")).alias("finish")
    inside = spans.with_columns(finish).filter(
        pl.col("start") >= start, pl.col("finish") <= end, pl.col("duration") > 0
    )
    longest = inside.sort("duration", descending=True).head(MAX_PHASES).sort("start", "finish")
    for begin, until, category, file, line in longest.select(
        "start", "finish", pl.col("category").cast(pl.String), "file", "line"
    ).iter_rows():
        began, ended = clock.to_wall(np.array([begin, until])).tolist()
        yield Phase(category, began, ended, at_line(PurePath(file).name, line) if file else "")
