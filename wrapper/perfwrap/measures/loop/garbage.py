"""Pauses of Python's garbage collector in the steady loop."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_spans import loop_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer


class Garbage(Struct, frozen=True):
    """Collections on the training thread in the steady loop."""

    count: int
    pause_ns: int
    longest_ns: int
    share: float
    """``pause_ns`` over the whole account."""
    by_generation: dict[int, int]
    """Pause time per generation in nanoseconds."""
    steps_hit: int
    """Steady steps with at least one pause of 1 ms or more."""


LONG_PAUSE_NS = 1_000_000
"""A pause of 1 ms is noticeable in a step."""

LENGTH = pl.col("end") - pl.col("start")


def find_garbage(evidence: Evidence, trainer: Trainer) -> Garbage:
    """Return the pauses of the steady loop outside validation."""
    account = evidence.get(find_account, trainer)
    own = account.segments.filter(pl.col("part") == "gc")
    pause = int(own.select(LENGTH.sum()).item() or 0)
    spans = loop_spans(evidence.timeline, trainer, account).filter(pl.col("part") == "gc")
    generations = spans.group_by("value").agg(pl.col("duration").sum()).drop_nulls().sort("value")
    long = spans.filter(pl.col("duration") >= LONG_PAUSE_NS)
    return Garbage(
        count=spans.height,
        pause_ns=pause,
        longest_ns=spans.select(pl.col("duration").max().fill_null(0)).item(),
        share=pause / account.total_ns if account.total_ns else 0.0,
        by_generation=dict(generations.iter_rows()),
        steps_hit=long["at_step"].n_unique() if long.height else 0,
    )
