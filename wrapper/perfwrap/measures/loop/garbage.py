"""Pauses of Python's garbage collector in the steady loop."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_spans import loop_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import ENOUGH, LONG_NS, OUTSIDE
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


MIN_LINE_SHARE = 0.5
"""Share of the samples in long pauses from which one line makes the objects that are collected."""

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


def find_allocating_line(evidence: Evidence, trainer: Trainer) -> Line | None:
    """Return the line of the program that runs during most long pauses: it makes objects until a collection begins.

    None without enough of py-spy's samples, or if they are at several lines.
    """
    pauses = evidence.get(find_account, trainer).segments.filter(pl.col("part") == "gc", LENGTH >= LONG_NS)
    stacks = evidence.timeline.stacks.filter(pl.col("track") == trainer.thread, pl.col("source") == OUTSIDE)
    joined = stacks.sort("time").join_asof(
        pauses.select("start", "end").sort("start"), left_on="time", right_on="start", strategy="backward"
    )
    inside = joined.filter(pl.col("time") < pl.col("end"))
    whole = int(inside["weight"].sum())
    lines = (
        inside.drop_nulls(["file", "line"]).group_by("file", "line", "function").agg(pl.col("weight").sum())
    )
    if whole < ENOUGH or lines.is_empty():
        return None
    file, line, function, weight = lines.sort("weight", "file", "line", descending=[True, False, False]).row(
        0
    )
    return Line(file, line, function or "") if weight >= MIN_LINE_SHARE * whole else None
