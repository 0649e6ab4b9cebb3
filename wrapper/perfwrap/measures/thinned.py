"""Fills the account of stretches whose detail was thinned away with what their exact sums say.

Sums are inclusive and say nothing about places. Each sum is scaled by the exclusive share that the same
event has where it stands in detail, and laid one after the other into the time of the stretch that nothing
else owns.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.loop_events import Integers
from perfwrap.measures.tiling import distinct

KEY = ("operation", "name", "file", "line")
LENGTH = (pl.col("end") - pl.col("start")).alias("ns")
LABELS = ("operation", "name", "file", "line", "function")


def stretch_edges(sums: pl.DataFrame) -> Integers:
    """Return starts and ends of the thinned stretches, alternating and sorted."""
    edges = sums.select("start", "end").unique().sort("start")
    return np.column_stack([edges["start"].to_numpy(), edges["end"].to_numpy()]).reshape(-1)


def fill_thinned(segments: pl.DataFrame, spans: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Return the segments with the free time of thinned stretches given to the sums, marked as estimated.

    ``segments`` end at the edges of stretches. What the sums leave over stays ``python``.
    """
    if sums.is_empty():
        return segments
    edges = stretch_edges(sums)
    place = np.searchsorted(edges, segments["start"].to_numpy(), side="right")
    numbered = segments.with_columns(pl.Series("stretch", np.where(place % 2 == 1, place // 2, -1)))
    is_free = (pl.col("stretch") >= 0) & (pl.col("part") == "python") & pl.col("operation").is_null()
    free = numbered.filter(is_free)
    if free.is_empty():
        return segments
    pieces = _sized(sums, spans, segments, numbered.filter(pl.col("stretch") >= 0), edges)
    filled = _lay(free, pieces)
    kept = numbered.filter(~is_free).drop("stretch")
    return pl.concat([kept, filled.select(kept.columns).cast(kept.schema)]).sort("start")


def _sized(
    sums: pl.DataFrame, spans: pl.DataFrame, segments: pl.DataFrame, thinned: pl.DataFrame, edges: Integers
) -> pl.DataFrame:
    """Return for each sum its stretch, its part, and the exclusive time that it is given there."""
    exclusive = (
        segments.filter(pl.col("operation").is_not_null())
        .group_by(KEY)
        .agg(LENGTH.sum(), pl.col("part").sort_by(LENGTH).last())
    )
    inclusive = spans.group_by(KEY).agg(pl.col("duration").sum().alias("whole"))
    known = exclusive.join(inclusive, on=KEY, nulls_equal=True).with_columns(
        (pl.col("ns") / pl.col("whole")).clip(0.0, 1.0).alias("exclusive")
    )
    free = pl.col("ns").filter(pl.col("part") == "python", pl.col("operation").is_null()).sum()
    validating = pl.col("ns").filter(pl.col("part") == "validation").sum()
    room = (
        thinned.with_columns(LENGTH)
        .group_by("stretch")
        .agg(free.alias("free"), validating.alias("validating"))
    )
    stretch = np.searchsorted(edges, sums["start"].to_numpy(), side="right") // 2
    category = pl.col("category").cast(pl.String)
    # Validations inside of the stretch own part of the sums; how much is not known, so it goes by time.
    scale = pl.col("free") / (pl.col("free") + pl.col("validating")).clip(1)
    return (
        sums.with_columns(pl.Series("stretch", stretch, dtype=pl.Int64))
        .join(known.select(*KEY, "part", "exclusive"), on=KEY, how="left", nulls_equal=True)
        .join(room.with_columns(pl.col("stretch").cast(pl.Int64)), on="stretch")
        .with_columns(
            pl.coalesce(pl.col("part").cast(pl.String), category).alias("part"),
            (pl.col("duration") * pl.col("exclusive").fill_null(1.0) * scale).alias("wanted"),
        )
        .with_columns(
            (pl.col("free") / pl.col("wanted").sum().over("stretch").clip(1)).clip(0, 1).alias("fit")
        )
        .with_columns((pl.col("wanted") * pl.col("fit")).floor().cast(pl.Int64).alias("given"))
        .filter(pl.col("given") > 0, pl.col("part") != "validation")
        .sort("stretch", maintain_order=True)
    )


def _lay(free: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the free segments cut and given to the pieces of their stretch, in one pass over whole columns.

    Both are counted in free time: nanoseconds that nothing owns, joined end to end.
    """
    start = free["start"].to_numpy()
    length = free["end"].to_numpy() - start
    free_end = np.cumsum(length)
    free_start = free_end - length
    stretch = free["stretch"].to_numpy()
    base = free_start[np.searchsorted(stretch, pieces["stretch"].to_numpy())]
    before = (pl.col("given").cum_sum().over("stretch") - pl.col("given")).alias("before")
    piece_start = base + pieces.select(before)["before"].to_numpy()
    piece_end = piece_start + pieces["given"].to_numpy()
    cuts = distinct(np.concatenate([free_start, free_end, piece_start, piece_end]))
    at = cuts[:-1]
    lies = np.searchsorted(free_start, at, side="right") - 1
    piece = np.searchsorted(piece_start, at, side="right") - 1
    covered = (
        (piece >= 0) & (at < piece_end[np.maximum(piece, 0)]) if piece_start.size else np.zeros(at.size, bool)
    )
    owner = pl.Series(np.maximum(piece, 0)).set(pl.Series(~covered), None)
    begin = start[lies] + (at - free_start[lies])
    labels = pieces.select("part", *LABELS).select(pl.all().gather(owner))
    return labels.with_columns(
        pl.col("part").fill_null("python"),
        pl.Series("start", begin),
        pl.Series("end", begin + np.diff(cuts)),
        free["step"].gather(lies).alias("step"),
        pl.lit(True).alias("estimated"),
    )
