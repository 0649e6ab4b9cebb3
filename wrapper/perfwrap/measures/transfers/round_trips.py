"""Data that leaves the GPU and returns to it within one step."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.journal_format import FROM_GPU, TO_GPU
from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_spans import loop_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import BYTES_UNIT, LENGTH

MIN_BYTES = 4096
"""Copies below a page are scalars and short lists, whose sizes are equal by chance."""

DIRECTION = TO_GPU | FROM_GPU


class RoundTrip(Struct, frozen=True):
    """Two lines: one copies from the GPU, the other copies the same number of bytes back before the step ends."""

    away: Line
    back: Line
    bytes: int
    """In one direction."""
    steps: int
    """Detailed steps that have it."""
    steps_share: float
    """Share of all steady, detailed steps."""
    share: float
    """Host time in both lines' copies, over the whole account."""


def find_round_trips(evidence: Evidence, trainer: Trainer) -> tuple[RoundTrip, ...]:
    """Return the round trips of the steady loop, most time first.

    A copy to the GPU belongs to the last copy of its size from the GPU, in the same step and without a wait for a batch
    between them.
    """
    account = evidence.get(find_account, trainer)
    if not account.total_ns:
        return ()
    spans = loop_spans(evidence.timeline, trainer, account).filter(pl.col("part").is_in(["transfer", "data"]))
    events = spans.filter(pl.col("operation").is_in(["transfer", "data"])).with_columns(
        batch=(pl.col("operation") == "data").cum_sum(), size=pl.col("value") // BYTES_UNIT
    )
    known = events.filter(
        pl.col("operation") == "transfer",
        pl.col("size") >= MIN_BYTES,
        pl.col("file").is_not_null(),
        pl.col("at_step").is_not_null(),
    ).select("start", "file", "line", "function", "size", "batch", "at_step", way=pl.col("value") & DIRECTION)
    away = known.filter(pl.col("way") == FROM_GPU).drop("way")
    back = known.filter(pl.col("way") == TO_GPU).drop("way")
    if away.is_empty() or back.is_empty():
        return ()
    pairs = back.sort("start").join_asof(
        away.sort("start"),
        on="start",
        by=["size", "batch", "at_step"],
        strategy="backward",
        suffix="_away",
        check_sortedness=False,
    )
    found = (
        pairs.drop_nulls("file_away")
        .group_by("file_away", "line_away", "file", "line")
        .agg(
            pl.col("function").first(),
            pl.col("function_away").first(),
            pl.col("size").max(),
            pl.col("at_step").n_unique().alias("steps"),
        )
    )
    detailed = max(1, evidence.get(find_steps, trainer).table.filter("steady", "detailed").height)
    trips = (
        RoundTrip(
            away=Line(row["file_away"], row["line_away"], row["function_away"] or ""),
            back=Line(row["file"], row["line"], row["function"] or ""),
            bytes=row["size"],
            steps=row["steps"],
            steps_share=row["steps"] / detailed,
            share=_share(account, row),
        )
        for row in found.sort("file", "line", "file_away", "line_away").iter_rows(named=True)
    )
    return tuple(sorted(trips, key=lambda trip: -trip.share))


def _share(account: Account, row: dict[str, object]) -> float:
    """Return the share of the account inside the copies of both lines."""
    own = account.segments.filter(
        pl.col("part") == "transfer",
        ((pl.col("file") == row["file"]) & (pl.col("line") == row["line"]))
        | ((pl.col("file") == row["file_away"]) & (pl.col("line") == row["line_away"])),
    )
    return int(own.select(LENGTH.sum()).item()) / account.total_ns
