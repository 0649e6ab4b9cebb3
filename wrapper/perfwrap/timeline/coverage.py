"""Coverage: what was recorded, what was lost, and why."""

from __future__ import annotations

import polars as pl

from perfwrap.timeline.model import Timeline

RECORDER = "recorder"
"""``what`` of the coverage row of each recorded process, and the source of what perfwrap's recorder wrote."""

WINDOW = "torch_profiler"
"""``what`` of the rows that say when torch.profiler recorded a process for perfwrap, or why it did not."""

DATAFLOW = "dataflow"
"""``what`` of the rows that say when a dataflow window was open, or why there was none."""


def notes(timeline: Timeline, what: str) -> tuple[str, ...]:
    """Return the different notes about something, in order."""
    rows = timeline.coverage.filter(pl.col("what") == what, pl.col("note").is_not_null())
    return tuple(rows["note"].unique(maintain_order=True).to_list())
