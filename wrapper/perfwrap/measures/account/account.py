"""The account: every nanosecond of the training thread's steady loop, counted exactly once."""

from __future__ import annotations

from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.loop_events import Flags, Integers, thread_spans
from perfwrap.measures.account.parts import (
    DEEP_WHOLES,
    INSIDES,
    INTERRUPTIONS,
    OPEN,
    PART_OF,
    PARTS,
    REPEATED,
    WHOLES,
)
from perfwrap.measures.account.sampled_rest import place_unknown
from perfwrap.measures.account.tiling import NO_OWNER, Tiling, tile
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.sync_points import find_waits
from perfwrap.measures.recorder.own_work import without_own_work
from perfwrap.measures.steps.rests import with_lines
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.steps.thinned import fill_thinned, section_edges
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import empty

SEGMENT_COLUMNS: dict[str, Any] = {
    "start": pl.Int64,
    "end": pl.Int64,
    "part": pl.Enum(PARTS),
    "operation": pl.String,
    "name": pl.String,
    "file": pl.String,
    "line": pl.Int32,
    "function": pl.String,
    "until_line": pl.Int32,
    "after_operation": pl.String,
    "before_operation": pl.String,
    "step": pl.Int64,
    "estimated": pl.Boolean,
    "waits_for": pl.Int32,
}


class Account(Struct, frozen=True, dict=True):
    """Segments that cover [start, end) of the training thread without ``holes``: no gap, no overlap, integers only.

    ``segments`` has the columns of SEGMENT_COLUMNS. A segment names the innermost recorded event around it. A
    ``python`` segment has no such event: it has the line of the event before it and, as ``until_line``, that of the
    next event in the same file, with the operations of both (``after_operation``, ``before_operation``, without
    interruptions). Inside a validation phase everything is ``validation``, whatever its operation. ``step`` is the
    index in the steps' table, null after the last step. ``waits_for`` is the rank that a segment waits for, null if
    unknown.
    ``estimated`` segments represent steps without detail: their lengths come from exact sums, or, while recording was
    paused, from the detailed steps around it and from py-spy's samples; their positions are not exact. The same holds
    for segments without an operation that ``own_work`` separates from the program's Python: ``perfwrap`` for the time
    of the probes, ``optimizer`` for torch's. ``sums`` are those of sections without detail that overlap the account,
    each with a line if known.
    """

    segments: pl.DataFrame
    start: int
    end: int
    sums: pl.DataFrame
    holes: tuple[tuple[int, int], ...] = ()
    """Starts and ends of the steps that are not steady: not part of the account."""

    @cached_property
    def kept(self) -> dict[object, Any]:
        """Results that measures have computed from the account and share."""
        return {}

    @property
    def total_ns(self) -> int:
        """The length of the account."""
        return self.end - self.start - sum(end - start for start, end in self.holes)

    def holds(self, moments: Integers) -> Flags:
        """Return which moments are in the account."""
        found = (moments >= self.start) & (moments < self.end)
        for start, end in self.holes:
            found &= (moments < start) | (moments >= end)
        return np.asarray(found)

    @cached_property
    def ns(self) -> dict[str, int]:
        """Nanoseconds of each part; all parts are present, and their sum is ``total_ns``."""
        lengths = self.segments.group_by("part").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
        found = dict(zip(lengths["part"].to_list(), lengths["ns"].to_list(), strict=True))
        return {part: int(found.get(part, 0)) for part in PARTS}

    @cached_property
    def waiting_ns(self) -> dict[str, int]:
        """Nanoseconds of each part that were waits for other ranks, where known."""
        waits = self.segments.filter(pl.col("waits_for").is_not_null())
        rows = waits.group_by(pl.col("part").cast(pl.String)).agg((pl.col("end") - pl.col("start")).sum())
        return {part: int(ns) for part, ns in rows.iter_rows()}

    @cached_property
    def shares(self) -> dict[str, float]:
        """Each part over the total; all 0 if the account is empty."""
        return {part: value / self.total_ns if self.total_ns else 0.0 for part, value in self.ns.items()}

    def share_of(self, condition: pl.Expr) -> float:
        """Return the share of the segments that match a condition; 0 if the account is empty."""
        length = (pl.col("end") - pl.col("start")).filter(condition).sum()
        return int(self.segments.select(length).item()) / max(1, self.total_ns)


def find_account(evidence: Evidence, trainer: Trainer) -> Account:
    """Return the account of a trainer's steady loop; an empty one if there are no steps.

    ``waits`` are times in which it waited for another rank, ``last``: they are separate segments.
    """
    steps = evidence.get(find_steps, trainer)
    waits = evidence.get(find_waits, trainer)
    begin, finish = steps.warm_up_end, steps.loop_end
    if finish <= begin:
        return Account(pl.DataFrame(schema=SEGMENT_COLUMNS), begin, begin, empty("sums"))
    end = pl.col("start") + pl.col("duration")
    spans = _without_insides(
        thread_spans(evidence.timeline, trainer).filter(pl.col("start") < finish, end > begin)
    )
    sums = evidence.timeline.sums.filter(
        pl.col("track") == trainer.thread,
        pl.col("start") < finish,
        pl.col("end") > begin,
        ~pl.col("operation").is_in(INSIDES),
    )
    start = spans["start"].to_numpy()
    # The ends of steps without detail are unknown: only detailed steps divide the account.
    known_ends = steps.table.filter("detailed")["end"].to_numpy()
    waiting = waits.select("start", "end").to_numpy().reshape(-1)
    marks = (known_ends, steps.phases.start, steps.phases.end, section_edges(sums), waiting)
    tiling = tile(start, start + spans["duration"].to_numpy(), begin, finish, np.concatenate(marks))
    edges = np.sort(np.concatenate([section_edges(sums), waiting]))
    segments = _with_surroundings(_segments(tiling, spans, steps, edges))
    segments = without_own_work(segments, steps.detail_ns, np.sort(section_edges(sums)))
    holes = steps.table.filter(~pl.col("steady"), pl.col("start") >= begin)
    segments = segments.filter(~pl.col("step").is_in(holes["index"].to_list()).fill_null(False))
    sums = with_lines(sums, spans, steps.phases)
    filled = fill_thinned(segments, spans, sums, steps.table["end"].to_numpy())
    stacks = evidence.timeline.stacks.filter(pl.col("track") == trainer.thread)
    filled = place_unknown(filled, stacks, sums, _callers(evidence, trainer, steps))
    return Account(
        _with_waits(filled, waits), begin, finish, sums, tuple(holes.select("start", "end").iter_rows())
    )


def _callers(evidence: Evidence, trainer: Trainer, steps: Steps) -> set[tuple[str, int]]:
    """Return the lines, with the names of their files, that call models outside of validations."""
    calls = thread_spans(evidence.timeline, trainer).filter(
        pl.col("operation") == "forward", pl.col("file").is_not_null()
    )
    calls = calls.filter(pl.Series(~steps.phases.contain(calls["start"].to_numpy()), dtype=pl.Boolean))
    return {(PurePath(file).name, line) for file, line in calls.select("file", "line").unique().iter_rows()}


def _without_insides(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the spans without those that are part of the span around them.

    These are all inside a batch that is being made, a checkpoint that is being written or a call of the program's
    profiler, and the modules inside a repeated forward pass.
    """
    for wholes, parts in (
        (DEEP_WHOLES, ~pl.col("category").is_in([*DEEP_WHOLES, "perfwrap"])),
        (WHOLES, ~pl.col("category").is_in(INTERRUPTIONS)),
        *(((whole,), pl.col("category").is_in(parts)) for whole, parts in REPEATED.items()),
    ):
        spans = spans.filter(~(_is_inside(spans, wholes) & parts))
    return spans


def _is_inside(spans: pl.DataFrame, categories: tuple[str, ...]) -> pl.Series:
    """Return which spans are inside an earlier one of these categories."""
    is_whole = spans["category"].is_in(categories)
    if not is_whole.any():
        return pl.Series(np.zeros(spans.height, dtype=np.bool_))
    start, end = spans["start"].to_numpy(), (spans["start"] + spans["duration"]).to_numpy()
    reached = np.maximum.accumulate(np.where(is_whole.to_numpy(), end, 0))
    return pl.Series(np.append(False, (start[1:] < reached[:-1]) & (end[1:] <= reached[:-1])))


def _segments(tiling: Tiling, spans: pl.DataFrame, steps: Steps, edges: Integers) -> pl.DataFrame:
    """Return one row per run of pieces with the same owner, step and phase, between two of the sorted edges."""
    moments = tiling.cuts[:-1]
    step = np.searchsorted(steps.table["end"].to_numpy(), moments, side="right")
    validating = steps.phases.contain(moments)
    section = np.searchsorted(edges, moments, side="right")
    kinds = (tiling.owner, step, validating, section)
    first = np.flatnonzero(~np.logical_and.reduce([_unchanged(kind) for kind in kinds]))
    owner = pl.Series(tiling.owner[first]).set(pl.Series(tiling.owner[first] == NO_OWNER), None)
    part = pl.col("category").cast(pl.String).replace_strict(PART_OF, default=None).alias("part")
    rows = spans.select(part, "operation", "name", "file", "line", "function").select(pl.all().gather(owner))
    known = pl.col("part").fill_null("python")
    labels = ("operation", "name", "file", "line", "function")
    rows = rows.with_columns(
        pl.when(pl.col("operation").is_in(OPEN).not_().fill_null(True)).then(pl.col(label)).alias(label)
        for label in labels
    )
    return rows.with_columns(
        pl.Series("start", moments[first]),
        pl.Series("end", np.append(moments[first[1:]], tiling.cuts[-1])),
        pl.Series("step", step[first]).replace(steps.count, None),
        pl.when(pl.Series(validating[first])).then(pl.lit("validation")).otherwise(known).alias("part"),
        pl.lit(False).alias("estimated"),
    )


def _with_waits(segments: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Return the segments with the rank that each waits for; they are already split where the waits start and end."""
    known = waits.rename({"end": "until", "last": "waits_for"})
    joined = segments.sort("start").join_asof(known, on="start", strategy="backward")
    inside = (pl.col("end") <= pl.col("until")) & ~pl.col("estimated")
    return joined.with_columns(pl.when(inside).then("waits_for").alias("waits_for")).select(
        list(SEGMENT_COLUMNS)
    )


def _unchanged(values: Integers | Flags) -> Flags:
    """Return which values equal the previous one."""
    return np.concatenate([[False], values[1:] == values[:-1]])


def _with_surroundings(segments: pl.DataFrame) -> pl.DataFrame:
    """Give Python segments the line of the event before them and, in the same file, that of the next one.

    Events without a line are skipped; interruptions do not count as the previous or next event.
    """
    lone = (pl.col("part") == "python") & pl.col("operation").is_null()
    asked = pl.when(~pl.col("part").is_in(INTERRUPTIONS)).then("operation")
    located = segments.with_columns(
        pl.col("file", "line", "function").forward_fill().name.prefix("last_"),
        pl.col("file", "line").backward_fill().name.prefix("next_"),
        asked.forward_fill().alias("last_operation"),
        asked.backward_fill().alias("next_operation"),
    )
    same_file = pl.col("next_file") == pl.col("last_file")
    return located.with_columns(
        *(
            pl.when(lone).then(f"last_{name}").otherwise(name).alias(name)
            for name in ("file", "line", "function")
        ),
        pl.when(lone & same_file).then("next_line").alias("until_line"),
        pl.when(lone).then("last_operation").alias("after_operation"),
        pl.when(lone).then("next_operation").alias("before_operation"),
    ).select(pl.col(name).cast(kind) for name, kind in SEGMENT_COLUMNS.items() if name != "waits_for")
