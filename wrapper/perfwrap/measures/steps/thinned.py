"""Fills the account of sections without detail from their exact sums.

Sums are inclusive and have no positions. Each sum is scaled by the share of the same event in detailed steps that is
outside the events inside it, and outside validations; then it is placed into the time of the section that no other
event owns. The remaining time is the program's Python: it is divided among the lines between which Python ran in
detailed steps, in the same proportion.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.intervals import distinct
from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.account.parts import PART_OF
from perfwrap.measures.steps.rests import leftovers

KEY = ("operation", "name", "file", "line")
LENGTH = (pl.col("end") - pl.col("start")).alias("ns")
LABELS = (
    "operation",
    "name",
    "file",
    "line",
    "function",
    "until_line",
    "after_operation",
    "before_operation",
)
MAX_GAPS = 20
"""How many sections of Python share the remaining time; the others are small."""

EDGES = ("loader_start", "data_end")
"""Operations of a loader that end a section."""

IS_GAP = (pl.col("part") == "python") & pl.col("operation").is_null()


def section_edges(sums: pl.DataFrame) -> Integers:
    """Return starts and ends of the sections without detail, alternating and sorted."""
    edges = sums.select("start", "end").unique().sort("start")
    return np.column_stack([edges["start"].to_numpy(), edges["end"].to_numpy()]).reshape(-1)


def known_parts(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the part of each event in detailed steps, and its time outside validations."""
    outside = LENGTH.filter(pl.col("part") != "validation")
    part = pl.col("part").cast(pl.String).sort_by(pl.col("part") != "validation", LENGTH).last()
    return (
        segments.filter(pl.col("operation").is_not_null()).group_by(KEY).agg(outside.sum().alias("own"), part)
    )


def fill_thinned(
    segments: pl.DataFrame, spans: pl.DataFrame, sums: pl.DataFrame, step_ends: Integers
) -> pl.DataFrame:
    """Return the segments with the free time of sections without detail assigned to the sums, marked as estimated.

    ``segments`` end at the edges of sections and have their surroundings.
    """
    if sums.is_empty():
        return segments
    edges = section_edges(sums)
    place = np.searchsorted(edges, segments["start"].to_numpy(), side="right")
    numbered = segments.with_columns(pl.Series("section", np.where(place % 2 == 1, place // 2, -1)))
    is_free = IS_GAP & (pl.col("section") >= 0)
    free = numbered.filter(is_free)
    if free.is_empty():
        return segments
    passed = np.searchsorted(step_ends, edges, side="right")
    steps = pl.DataFrame({"section": np.arange(edges.size // 2), "steps": np.diff(passed)[::2]})
    room = free.group_by("section").agg(LENGTH.sum().alias("free")).join(steps, on="section")
    sums = sums.with_columns(
        pl.Series("section", np.searchsorted(edges, sums["start"].to_numpy(), side="right") // 2)
    )
    pieces = _sized(sums, spans, segments, room)
    gaps = _gaps(numbered.filter(pl.col("section") < 0), sums, pieces, room)
    filled = _lay(free, pl.concat([pieces, gaps]).sort("section", maintain_order=True))
    kept = numbered.filter(~is_free).drop("section")
    return pl.concat([kept, filled.select(kept.columns).cast(kept.schema)]).sort("start")


def _sized(
    sums: pl.DataFrame, spans: pl.DataFrame, segments: pl.DataFrame, room: pl.DataFrame
) -> pl.DataFrame:
    """Return for each sum its section, its part, and the exclusive time that it gets there."""
    inclusive = spans.group_by(KEY).agg(pl.col("duration").sum().alias("whole"))
    known = known_parts(segments).join(inclusive, on=KEY, nulls_equal=True)
    share = (pl.col("own") / pl.col("whole")).clip(0.0, 1.0).alias("share")
    wanted = pl.col("duration") * pl.col("share").fill_null(1.0)
    fit = (pl.col("free") / pl.col("wanted").sum().over("section").clip(1)).clip(0, 1)
    part = pl.col("category").cast(pl.String).replace_strict(PART_OF, default="python")
    return (
        sums.join(known.select(*KEY, "part", share), on=KEY, how="left", nulls_equal=True)
        .join(room, on="section")
        .with_columns(wanted.alias("wanted"), pl.coalesce("part", part).alias("part"))
        .with_columns((pl.col("wanted") * fit).floor().cast(pl.Int64).alias("given"))
        .filter(pl.col("given") > 0, pl.col("part") != "validation")
        .select("section", "part", *LABELS[:5], *_nothing(LABELS[5:]), "given")
    )


def _gaps(
    detailed: pl.DataFrame, sums: pl.DataFrame, pieces: pl.DataFrame, room: pl.DataFrame
) -> pl.DataFrame:
    """Return the remaining time of each section, divided among the gaps in detailed steps.

    In a pause it is also divided among all operations that were paused. Gaps next to the start or the end of a loader's
    iteration are not part of a section and get nothing.
    """
    at_edge = pl.col("after_operation").is_in(EDGES) | (pl.col("before_operation") == "loader_start")
    detailed = detailed.filter(~(IS_GAP & at_edge.fill_null(False)))
    gaps = (
        detailed.filter(IS_GAP)
        .group_by(LABELS)
        .agg(LENGTH.sum())
        .sort("ns", *LABELS, descending=True)
        .head(MAX_GAPS)
        .with_columns((pl.col("ns") / pl.col("ns").sum()).alias("share"))
    )
    taken = pieces.group_by("section").agg(pl.col("given").sum().alias("taken"))
    left = room.join(taken, on="section", how="left").with_columns(
        (pl.col("free") - pl.col("taken").fill_null(0)).alias("left")
    )
    given = (pl.col("left") * pl.col("share")).floor().cast(pl.Int64).alias("given")
    rests = sums.filter("rest").select("section").unique()
    summed = left.join(rests, on="section", how="anti")
    shared = summed.join(gaps, how="cross").with_columns(given, pl.lit("python").alias("part"))
    timed = detailed.with_columns(LENGTH, pl.col("part").cast(pl.String))
    rested = leftovers(timed, sums, left.join(rests, on="section", how="semi"), LABELS)
    return pl.concat(
        [shared.filter(pl.col("given") > 0).select(pieces.columns), rested.select(pieces.columns)]
    )


def _lay(free: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the free segments, split and assigned to the pieces of their section, in one pass over whole columns.

    Both are measured in free time: nanoseconds without an owner, joined end to end.
    """
    start = free["start"].to_numpy()
    length = free["end"].to_numpy() - start
    free_end = np.cumsum(length)
    free_start = free_end - length
    base = free_start[np.searchsorted(free["section"].to_numpy(), pieces["section"].to_numpy())]
    before = pl.col("given").cum_sum().over("section") - pl.col("given")
    piece_start = base + pieces.select(before)["given"].to_numpy()
    piece_end = np.append(piece_start + pieces["given"].to_numpy(), 0)
    cuts = distinct(np.concatenate([free_start, free_end, piece_start, piece_end[:-1]]))
    at = cuts[:-1]
    lies = np.searchsorted(free_start, at, side="right") - 1
    piece = np.searchsorted(piece_start, at, side="right") - 1
    owner = pl.Series(piece).set(pl.Series(at >= piece_end[piece]), None)
    begin = start[lies] + (at - free_start[lies])
    labels = pieces.select("part", *LABELS).select(pl.all().gather(owner))
    return labels.with_columns(
        pl.col("part").fill_null("python"),
        pl.Series("start", begin),
        pl.Series("end", begin + np.diff(cuts)),
        free["step"].gather(lies).alias("step"),
        pl.lit(True).alias("estimated"),
    )


def _nothing(columns: tuple[str, ...]) -> list[pl.Expr]:
    """Return columns that sums do not have."""
    return [pl.lit(None, pl.Int32 if name == "until_line" else pl.String).alias(name) for name in columns]
