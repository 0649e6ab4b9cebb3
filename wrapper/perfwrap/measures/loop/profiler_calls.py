"""What the program's own torch.profiler costs in the steady loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_events import Flags, thread_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.settings_in_force import periods_switched_on
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

FACT = "user_profiler"
"""The fact that says whether a profiler of the program records."""

FULL = 2
"""The generation of a full collection."""
MIN_LONGER = 2.0
"""Full collections got longer because of the profiler if the first ones after it take this many times as long as the
last ones before it."""
COMPARED = 3
"""How many full collections before and after are compared, by their medians."""
LONG_CALL_NS = 1_000_000
"""A shorter call of the profiler makes no objects that matter."""

LENGTH = pl.col("end") - pl.col("start")


class ProfilerCall(Struct, frozen=True):
    """A function of the profiler at a line; ``ns`` is without other calls of the profiler inside."""

    name: str
    where: Line | None
    ns: int


class ProfilerCalls(Struct, frozen=True):
    """The calls of the program's profiler in the account."""

    calls: tuple[ProfilerCall, ...]
    """Most time first."""
    share: float
    """Share of the account in these calls, with the garbage collections during them."""
    steps: int
    """Steps in which they are."""
    objects_since: int | None
    """Since when full collections visit the profiler's objects, in ns; None if they got no longer."""
    objects_ns: int
    """How much longer than before the full collections outside of the calls took since then."""
    may_cause_collections: bool
    """Whether the profiler's objects may have caused the full collections outside of its calls: none in the loop was
    before the first call, and there are no more of them than long calls."""
    slowdown: float | None
    """Median of the steady steps that the profiler recorded over that of the others; None if one of them is missing."""


def find_profiler_calls(evidence: Evidence, trainer: Trainer) -> ProfilerCalls:
    """Return the profiler's calls in the steady loop and what its recording does to steps and collections."""
    account = evidence.get(find_account, trainer)
    own = account.segments.filter(pl.col("part") == "profiler")
    lines = (
        own.group_by("name", "file", "line")
        .agg(pl.col("function").first(), LENGTH.sum().alias("ns"))
        .sort("ns", "name", "line", descending=True)
    )
    since, more, may_cause = _objects(evidence, trainer)
    return ProfilerCalls(
        calls=tuple(_call(row) for row in lines.iter_rows(named=True)),
        share=account.shares["profiler"],
        steps=own["step"].n_unique(),
        objects_since=since,
        objects_ns=more,
        may_cause_collections=may_cause,
        slowdown=_slowdown(evidence, trainer),
    )


def recorded_steps(evidence: Evidence, trainer: Trainer) -> Flags:
    """Return for each row of the steps' table whether the program's profiler recorded at least half of the step."""
    table = evidence.get(find_steps, trainer).table
    periods = evidence.get(periods_switched_on, trainer, FACT)
    inside = pl.lit(0)
    for begin, end in periods:
        inside += (pl.min_horizontal("end", pl.lit(end)) - pl.max_horizontal("start", pl.lit(begin))).clip(0)
    return table.select((inside >= 0.5 * LENGTH.clip(1)).alias("recorded"))["recorded"].to_numpy()


def _call(row: dict[str, Any]) -> ProfilerCall:
    """Return the figures of one line."""
    return ProfilerCall(row["name"] or "", line_of(row["file"], row["line"], row["function"]), row["ns"])


def _slowdown(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return how much longer the steps take that the profiler records."""
    table = evidence.get(find_steps, trainer).table
    recorded = pl.Series("recorded", evidence.get(recorded_steps, trainer))
    steady = table.with_columns(recorded).filter("steady")
    medians = dict(steady.group_by("recorded").agg(pl.col("duration").median()).iter_rows())
    with_it, without_it = medians.get(True), medians.get(False)
    return with_it / without_it if with_it and without_it else None


def _objects(evidence: Evidence, trainer: Trainer) -> tuple[int | None, int, bool]:
    """Return since when full collections are longer because of the profiler's objects, how much, and ``may_cause``.

    They are if the first ones after a call take much longer than the last ones before it in the loop: a history of the
    program grows without such a jump, and what was imported or set up before the loop is in both.
    """
    account, table = evidence.get(find_account, trainer), evidence.get(find_steps, trainer).table
    end = (pl.col("start") + pl.col("duration")).alias("end")
    spans = thread_spans(evidence.timeline, trainer).with_columns(end)
    calls = spans.filter(pl.col("operation") == "profiler", pl.col("duration") >= LONG_CALL_NS).sort("start")
    full = spans.filter(
        pl.col("operation") == "gc", pl.col("value") == FULL, pl.col("start") >= table["start"].min()
    )
    if calls.is_empty() or full.is_empty():
        return None, 0, False
    first, until = calls.row(0, named=True)["start"], calls.row(0, named=True)["end"]
    reached = calls.select(pl.col("end").cum_max().alias("reached"), call=pl.col("start"))
    outside = full.sort("start").join_asof(reached, left_on="start", right_on="call", strategy="backward")
    outside = outside.filter(pl.col("reached").is_null() | (pl.col("end") > pl.col("reached")))
    earlier, later = (
        outside.filter(pl.col("end") <= first)["duration"],
        outside.filter(pl.col("start") >= until),
    )
    if later.is_empty():
        return None, 0, False
    if earlier.is_empty():
        return None, 0, later.height <= calls.height
    before, after = (
        float(np.median(few.to_numpy())) for few in (earlier.tail(COMPARED), later["duration"].head(COMPARED))
    )
    if after < MIN_LONGER * before:
        return None, 0, False
    inside = later.filter(pl.Series(account.holds(later["start"].to_numpy()), dtype=pl.Boolean))
    return until, int((after - before) * inside.height), False
