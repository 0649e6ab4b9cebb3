"""Pauses of Python's garbage collector inside the steady loop."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.loop_spans import loop_spans
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline


@dataclass(frozen=True)
class Garbage:
    """Collections on the training thread during the steady loop."""

    count: int
    pause_ns: int
    longest_ns: int
    share: float
    """``pause_ns`` over the whole account."""
    by_generation: dict[int, int]
    """Pause per generation, ns."""
    steps_hit: int
    """Steady steps with at least one pause of a millisecond or more."""


NOTICEABLE_NS = 1_000_000
"""A pause of a millisecond is noticed in a step."""

LENGTH = pl.col("end") - pl.col("start")


def find_garbage(timeline: Timeline, trainer: Trainer, account: Account) -> Garbage:
    """Return the pauses of the steady loop outside of validation."""
    own = account.segments.filter(pl.col("part") == "gc")
    pause = int(own.select(LENGTH.sum()).item() or 0)
    spans = loop_spans(timeline, trainer, account).filter(pl.col("part") == "gc")
    generations = spans.group_by("value").agg(pl.col("duration").sum()).drop_nulls().sort("value")
    long = spans.filter(pl.col("duration") >= NOTICEABLE_NS)
    return Garbage(
        count=spans.height,
        pause_ns=pause,
        longest_ns=spans.select(pl.col("duration").max().fill_null(0)).item(),
        share=pause / account.total_ns if account.total_ns else 0.0,
        by_generation=dict(generations.iter_rows()),
        steps_hit=long["at_step"].n_unique() if long.height else 0,
    )
