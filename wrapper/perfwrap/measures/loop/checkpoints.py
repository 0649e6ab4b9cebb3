"""The cost of saving and loading on the training thread, by line."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_spans import loop_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer


class CheckpointLine(Struct, frozen=True):
    """One line that saves or loads, in the steady loop outside validation."""

    operation: str
    """``save`` or ``load``."""
    where: Line | None
    count: int
    blocked_ns: int
    share: float
    """``blocked_ns`` over the whole account."""
    median_ns: float
    every_steps: float | None
    """Steps from one call to the next, or from one group of calls in a row; None for a single call or group."""
    at_a_time: float
    """Calls in a row (mean)."""
    bytes: int | None
    """Bytes written by one call (median), if known."""


KEY = ("operation", "file", "line", "function")


def find_checkpoints(evidence: Evidence, trainer: Trainer) -> tuple[CheckpointLine, ...]:
    """Return the lines of the steady loop that save or load, most time first."""
    account = evidence.get(find_account, trainer)
    spans = loop_spans(evidence.timeline, trainer, account).filter(
        pl.col("part") == "checkpoint", pl.col("operation").is_in(["save", "load"])
    )
    lines = (
        spans.group_by(KEY)
        .agg(
            pl.len().alias("count"),
            pl.col("duration").sum().alias("blocked"),
            pl.col("duration").median().alias("median"),
            pl.col("at_step").drop_nulls().sort(),
            pl.col("value").filter(pl.col("value") > 0).median().alias("bytes"),
        )
        .sort("blocked", descending=True)
    )
    return tuple(_line(row, account) for row in lines.iter_rows(named=True))


def _line(row: dict[str, Any], account: Account) -> CheckpointLine:
    """Return the figures of one line."""
    every, at_a_time = _rhythm(np.array(row["at_step"], dtype=np.float64))
    return CheckpointLine(
        operation=row["operation"],
        where=line_of(row["file"], row["line"], row["function"]),
        count=row["count"],
        blocked_ns=row["blocked"],
        share=row["blocked"] / account.total_ns,
        median_ns=row["median"],
        every_steps=every,
        at_a_time=at_a_time,
        bytes=None if row["bytes"] is None else int(row["bytes"]),
    )


def _rhythm(steps: NDArray[np.float64]) -> tuple[float | None, float]:
    """Return the steps between groups of calls (None for one group), and the calls of a group, for sorted steps.

    Calls in a row are closer than the mean distance: two files of one checkpoint are one group.
    """
    if steps.size < 2:
        return None, 1.0
    apart = np.diff(steps)
    groups = 1 + int((apart >= apart.mean()).sum()) if apart.any() else 1
    every = float(steps[-1] - steps[0]) / (groups - 1) if groups > 1 else None
    return every, steps.size / groups
