"""The events of a steady loop, each with the part of the account in which it started."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.account import Account
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.account.parts import PART_OF
from perfwrap.measures.steps.steps import Steps
from perfwrap.measures.steps.thinned import KEY, known_parts
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import MAX_KEPT_ROWS
from perfwrap.timeline.model import Timeline


def loop_spans(timeline: Timeline, trainer: Trainer, account: Account) -> pl.DataFrame:
    """Return the spans that started in the account, with ``part`` and ``at_step`` of that moment."""
    if timeline.spans.height > MAX_KEPT_ROWS:
        return _loop_spans(timeline, trainer, account)
    if trainer not in account.kept:
        account.kept[trainer] = _loop_spans(timeline, trainer, account)
    found: pl.DataFrame = account.kept[trainer]
    return found


def _loop_spans(timeline: Timeline, trainer: Trainer, account: Account) -> pl.DataFrame:
    """Compute that."""
    spans = thread_spans(timeline, trainer)
    spans = spans.filter(pl.Series(account.holds(spans["start"].to_numpy()), dtype=pl.Boolean))
    segments = account.segments
    place = np.searchsorted(segments["start"].to_numpy(), spans["start"].to_numpy(), side="right") - 1
    return spans.with_columns(
        segments["part"].gather(place).cast(pl.String).alias("part"),
        segments["step"].gather(place).alias("at_step"),
    )


def thinned_sums(account: Account) -> pl.DataFrame:
    """Return the sums of steps without detail in the account, with the ``part`` of such events."""
    if "thinned_sums" not in account.kept:
        account.kept["thinned_sums"] = _thinned_sums(account)
    found: pl.DataFrame = account.kept["thinned_sums"]
    return found


def _thinned_sums(account: Account) -> pl.DataFrame:
    """Compute that."""
    sums = account.sums.filter(pl.col("start") >= account.start, pl.col("end") <= account.end)
    if sums.is_empty():
        return sums.with_columns(part=pl.lit(None, pl.String))
    known = known_parts(account.segments).select(*KEY, "part")
    other = pl.col("category").cast(pl.String).replace_strict(PART_OF, default="python")
    part = pl.when(pl.col("rest") & pl.col("validating")).then(pl.lit("validation"))
    return sums.join(known, on=KEY, how="left", nulls_equal=True).with_columns(
        part.otherwise(pl.coalesce("part", other)).alias("part")
    )


def paused_share(steps: Steps, account: Account) -> float:
    """Return the share of the steady steps during which recording was paused; less than 1."""
    rests = account.sums.filter("rest").select("start", "end").unique().sort("start")
    ends = steps.table.filter("steady", ~pl.col("detailed"))["end"].to_numpy()
    place = np.searchsorted(rests["start"].to_numpy(), ends, side="left") - 1
    inside = ends <= np.append(rests["end"].to_numpy(), 0)[place]
    return min(0.999, float(np.count_nonzero(inside & (place >= 0))) / max(1, steps.steady))
