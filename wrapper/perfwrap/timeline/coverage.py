"""Who watched what, what was lost, and what therefore nobody can say."""

from __future__ import annotations

import polars as pl

from perfwrap.timeline.model import Timeline

RECORDER = "recorder"
"""``what`` of the coverage row that each recorded process has."""


def watched(timeline: Timeline, what: str, track: int | None = None) -> bool:
    """Say whether anything was watched under that name, on that track if one is given."""
    rows = timeline.coverage.filter(pl.col("what") == what, _was_watched())
    if track is not None:
        rows = rows.filter(pl.col("track") == track)
    return rows.height > 0


def notes(timeline: Timeline, what: str) -> tuple[str, ...]:
    """Return the different notes about something, in the order in which they were made."""
    rows = timeline.coverage.filter(pl.col("what") == what, pl.col("note").is_not_null())
    return tuple(rows["note"].unique(maintain_order=True).to_list())


def lost_events(timeline: Timeline) -> int:
    """Return how many records are known to be lost, of all writers together."""
    return int(timeline.coverage["lost"].fill_null(0).sum())


def _was_watched() -> pl.Expr:
    """Return the condition for a row that covers some time."""
    return pl.col("end").is_null() | (pl.col("end") > pl.col("start"))
