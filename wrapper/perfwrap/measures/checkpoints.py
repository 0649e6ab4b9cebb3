"""What saving and loading cost the training thread, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line, line_of
from perfwrap.measures.loop_spans import loop_spans
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline


@dataclass(frozen=True)
class CheckpointLine:
    """One line that saves or loads, in the steady loop outside of validation."""

    operation: str
    """``save`` or ``load``."""
    where: Line | None
    count: int
    blocked_ns: int
    share: float
    """``blocked_ns`` over the whole account."""
    median_ns: float
    every_steps: float | None
    """Steps from one call to the next (median), None for a single call."""
    bytes: int | None
    """Bytes written by one call (median), where known."""


KEY = ("operation", "file", "line", "function")


def find_checkpoints(timeline: Timeline, trainer: Trainer, account: Account) -> tuple[CheckpointLine, ...]:
    """Return the lines of the steady loop that save or load, most time first."""
    spans = loop_spans(timeline, trainer, account).filter(
        pl.col("part") == "checkpoint", pl.col("operation").is_in(["save", "load"])
    )
    lines = (
        spans.group_by(KEY)
        .agg(
            pl.len().alias("count"),
            pl.col("duration").sum().alias("blocked"),
            pl.col("duration").median().alias("median"),
            pl.col("at_step").diff().median().alias("every"),
            pl.col("value").filter(pl.col("value") > 0).median().alias("bytes"),
        )
        .sort("blocked", descending=True)
    )
    return tuple(_line(row, account) for row in lines.iter_rows(named=True))


def _line(row: dict[str, Any], account: Account) -> CheckpointLine:
    """Return the figures of one line."""
    return CheckpointLine(
        operation=row["operation"],
        where=line_of(row["file"], row["line"], row["function"]),
        count=row["count"],
        blocked_ns=row["blocked"],
        share=row["blocked"] / account.total_ns,
        median_ns=row["median"],
        every_steps=row["every"],
        bytes=None if row["bytes"] is None else int(row["bytes"]),
    )
