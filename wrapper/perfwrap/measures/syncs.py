"""Where values came to the host, how often and for how long, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line, line_of
from perfwrap.measures.loop_spans import loop_spans, thinned_sums
from perfwrap.measures.steps import Steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline


@dataclass(frozen=True)
class SyncLine:
    """One call on one line; figures are of the steady loop outside of validation."""

    name: str
    """``Tensor.item`` and so on."""
    where: Line | None
    """None for calls too short for the recorder to look their line up."""
    count: int
    per_step: float
    blocked_ns: int
    """Exclusive time inside the call, as the account has it."""
    blocked_ns_per_step: float
    share: float
    """``blocked_ns`` over the whole account."""
    on_gpu: bool
    """Whether any of the tensors was on a GPU: only then the call also holds back the GPU."""


LENGTH = pl.col("end") - pl.col("start")
KEY = ("name", "file", "line", "function")


def find_syncs(timeline: Timeline, trainer: Trainer, steps: Steps, account: Account) -> tuple[SyncLine, ...]:
    """Return the calls of the steady loop by name and line, most blocked time first."""
    if not account.total_ns:
        return ()
    blocked = (
        account.segments.filter(pl.col("part") == "sync").group_by(KEY).agg(LENGTH.sum().alias("blocked"))
    )
    spans = loop_spans(timeline, trainer, account).filter(
        pl.col("operation") == "sync", pl.col("part") == "sync"
    )
    sums = thinned_sums(timeline, trainer, account).filter(pl.col("operation") == "sync")
    counts = pl.concat(
        [
            spans.select(*KEY, pl.lit(1, pl.Int64).alias("count"), (pl.col("value") == 1).alias("gpu")),
            sums.select(*KEY, "count", pl.lit(False).alias("gpu")),
        ]
    )
    lines = counts.group_by(KEY).agg(pl.col("count").sum(), pl.col("gpu").any())
    rows = lines.join(blocked, on=KEY, how="left", nulls_equal=True).sort("blocked", descending=True)
    return tuple(_line(row, steps, account) for row in rows.iter_rows(named=True))


def _line(row: dict[str, Any], steps: Steps, account: Account) -> SyncLine:
    """Return the figures of one line."""
    blocked = row["blocked"] or 0
    return SyncLine(
        name=row["name"] or "",
        where=line_of(row["file"], row["line"], row["function"]),
        count=row["count"],
        per_step=row["count"] / steps.steady,
        blocked_ns=blocked,
        blocked_ns_per_step=blocked / steps.steady,
        share=blocked / account.total_ns,
        on_gpu=bool(row["gpu"]),
    )
