"""Separates the recorder's work around each event from the program's Python.

A probe looks up lines and writes its record after the event, so this time is between events and would count as Python.
It is removed from the start of each such gap, with the same length everywhere: the cost of recording a step divided by
the gaps of a step. The work of torch around an optimizer's hooks is removed from the gaps next to it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.steps.thinned import LABELS

BEFORE_HOOKS_NS, AFTER_HOOKS_NS = 20_000, 10_000
"""Time of ``Optimizer.step`` before it calls the hooks that time it, and after: 22 and 10 µs of 1 ms without perfwrap
(torch 2.13), for its ``record_function`` and the lookup of hooks."""


def without_own_work(segments: pl.DataFrame, detail_ns: float, edges: Integers) -> pl.DataFrame:
    """Return the segments with the gaps between two detailed events split into perfwrap's own work and the program's.

    ``segments`` are an account's in order, ``edges`` the sorted starts and ends of sections without detail.
    """
    in_detail = pl.Series(np.searchsorted(edges, segments["start"].to_numpy(), side="right") % 2 == 0)
    is_gap = (
        (pl.col("part") == "python")
        & pl.col("operation").is_null()
        & pl.col("after_operation").is_not_null()
        & pl.col("before_operation").is_not_null()
        & in_detail
    )
    gaps = segments.filter(is_gap)
    if not detail_ns or gaps.is_empty():
        return segments
    each = round(detail_ns * gaps["step"].n_unique() / gaps.height)
    start, end = pl.col("start"), pl.col("end")
    is_before, is_after = pl.col("before_operation") == "optimizer", pl.col("after_operation") == "optimizer"
    ours = pl.min_horizontal(start + each, end)
    after = pl.min_horizontal(ours + is_after.cast(pl.Int64) * AFTER_HOOKS_NS, end)
    before = pl.max_horizontal(end - is_before.cast(pl.Int64) * BEFORE_HOOKS_NS, after)
    cut = (
        gaps.lazy()
        .with_columns(ours.alias("ours"))
        .with_columns(after.alias("after"))
        .with_columns(before.alias("before"))
    )
    unlabelled = [pl.lit(None).cast(segments.schema[name]).alias(name) for name in LABELS]
    pieces = [
        cut.with_columns(
            start=pl.col(since), end=pl.col(until), part=pl.lit(part), estimated=pl.lit(True)
        ).with_columns(unlabelled)
        for since, until, part in (
            ("start", "ours", "perfwrap"),
            ("ours", "after", "optimizer"),
            ("before", "end", "optimizer"),
        )
    ]
    pieces.append(cut.with_columns(start=pl.col("after"), end=pl.col("before")))
    rows = [piece.select(segments.columns).cast(segments.schema) for piece in pieces]
    whole = pl.concat([segments.filter(~is_gap).lazy(), *rows])
    return whole.filter(pl.col("start") < pl.col("end")).sort("start").collect()
