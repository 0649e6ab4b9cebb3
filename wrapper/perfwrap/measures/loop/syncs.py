"""Values read by the host: how often and how long, by line.

A copy from a GPU without non_blocking (``x.cpu()``) is a transfer in the account and is also listed here: it makes the
host wait like any read of a value.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_spans import loop_spans, paused_share, thinned_sums
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import waiting_lines


class SyncLine(Struct, frozen=True):
    """One call on one line; figures are for the steady loop outside validation."""

    name: str
    """``Tensor.item`` and so on."""
    where: Line | None
    """None for calls that are too short for the recorder to look up their line."""
    count: int
    per_step: float
    blocked_ns: int
    """Exclusive time inside the call, from the account."""
    blocked_ns_per_step: float
    share: float
    """``blocked_ns`` over the whole account."""
    on_gpu: bool
    """Whether any of the tensors was on a GPU: only then does the call also delay the GPU."""


LENGTH = pl.col("end") - pl.col("start")
KEY = ("name", "file", "line", "function")
ON_GPU = (pl.col("operation") == "transfer") | (pl.col("value") == 1)


def find_syncs(evidence: Evidence, trainer: Trainer) -> tuple[SyncLine, ...]:
    """Return the calls of the steady loop by name and line, most blocked time first.

    The recorder looks up the line of long calls, of a step's first calls, and of a sample of the others.
    Calls without a line are shared out among the lines of the same name, by how often those were seen.
    """
    steps = evidence.get(find_steps, trainer)
    account = evidence.get(find_account, trainer)
    if not account.total_ns:
        return ()
    spans = loop_spans(evidence.timeline, trainer, account)
    waiting = waiting_lines(spans)
    blocked = _syncs(account.segments, waiting).group_by(KEY).agg(LENGTH.sum().alias("blocked"))
    seen = _syncs(spans, waiting).select(*KEY, pl.lit(1, pl.Int64).alias("count"), ON_GPU.alias("gpu"))
    sums = _syncs(thinned_sums(account), waiting)
    counts = pl.concat([seen, sums.select(*KEY, "count", pl.lit(False).alias("gpu"))])
    # Steps while recording is paused have as many as the others.
    whole = (pl.col("count").sum() / (1 - paused_share(steps, account))).round().cast(pl.Int64)
    lines = counts.group_by(KEY).agg(whole, pl.col("gpu").any())
    rows = lines.join(blocked, on=KEY, how="full", nulls_equal=True, coalesce=True).with_columns(
        pl.col("blocked", "count").fill_null(0), pl.col("gpu").fill_null(False)
    )
    shared = _shared_out(rows.sort(*KEY, nulls_last=True).to_dicts())
    return tuple(_line(row, steps, account) for row in sorted(shared, key=lambda row: -row["blocked"]))


def _syncs(rows: pl.DataFrame, waiting: pl.DataFrame) -> pl.DataFrame:
    """Return the rows about syncs, and those about transfers on lines that wait."""
    transfers = rows.filter(pl.col("operation") == "transfer", pl.col("part") == "transfer")
    return pl.concat(
        [
            rows.filter(pl.col("operation") == "sync", pl.col("part") == "sync"),
            transfers.join(waiting, on=KEY, how="semi", nulls_equal=True),
        ]
    )


def _shared_out(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with lines, each with its part of the rows without lines; the sums stay the same."""
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(row["name"] for row in rows):
        located = [row for row in rows if row["name"] == name and row["file"] is not None]
        lost = [row for row in rows if row["name"] == name and row["file"] is None]
        counts = [max(1, row["count"]) for row in located]
        for figure in ("blocked", "count"):
            seen = given = 0
            whole = sum(row[figure] for row in lost)
            for row, count in zip(located, counts, strict=True):
                seen += count
                row[figure] += whole * seen // sum(counts) - given
                given = whole * seen // sum(counts)
        found += located or lost
    return found


def _line(row: dict[str, Any], steps: Steps, account: Account) -> SyncLine:
    """Return the figures of one line."""
    blocked = row["blocked"]
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
