"""What py-spy's samples say about the time of pauses that neither sums nor detailed steps explain."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from pathlib import PurePath

import polars as pl

from perfwrap.measures.account.parts import PART_OF
from perfwrap.measures.loop.library_calls import caller_of_modules

OUTSIDE = "py-spy"
MIN_SAMPLES = 20
"""Samples in pauses from which they divide the unknown time."""
MIN_SHARE = 0.02
"""Share of the account from which unknown time is divided."""
MAX_PIECES = 12
"""Lines among which it is divided; the others are small."""
MAX_SEGMENTS = 50_000
"""More pieces of unknown time are left as they are."""
PART_OF_OPERATION = {
    "gradient": "backward",
    "zero_grad": "optimizer",
    "clip": "optimizer",
    "save": "checkpoint",
    "load": "checkpoint",
}
"""The part of operations whose name is not that of their part."""
SUMMED = ("data", "data_end", "loader_start", "fetch", "getitem", "collate", "pin", "worker", "idle")
"""Operations that are also summed in pauses: they explain none of the unknown time."""
LABEL = ("operation", "file", "line", "function")
OCCASIONAL = "occasional"
"""Samples in models that are called from a line which the loop does not usually call them from: evaluations."""
LENGTH = pl.col("end") - pl.col("start")
IS_UNKNOWN = (
    (pl.col("part") == "python")
    & pl.col("estimated")
    & pl.all_horizontal(pl.col("operation", "file", "after_operation", "before_operation").is_null())
)


def place_unknown(
    segments: pl.DataFrame, stacks: pl.DataFrame, sums: pl.DataFrame, callers: Collection[tuple[str, int]]
) -> pl.DataFrame:
    """Return the segments with the unknown time of pauses divided by the samples of the thread in these pauses.

    ``callers`` are the lines, with the names of their files, that call models in recorded steps. Models that are called
    from other lines are evaluated.

    An operation gets what its share of the samples is above the time that it has already.
    """
    unknown = segments.filter(IS_UNKNOWN)
    total = int(segments.select(LENGTH.sum()).item() or 0)
    unknown_ns = int(unknown.select(LENGTH.sum()).item() or 0)
    if unknown_ns < MIN_SHARE * total or unknown.height > MAX_SEGMENTS:
        return segments
    pauses = sums.filter("rest").select("start", pl.col("end").alias("until")).unique().sort("start")
    samples = _inside(stacks.filter(pl.col("source") == OUTSIDE).rename({"time": "start"}), pauses)
    samples = samples.filter(~pl.col("operation").is_in(SUMMED).fill_null(False))
    samples = _with_occasional(samples, callers)
    whole = int(samples["weight"].sum())
    if whole < MIN_SAMPLES:
        return segments
    paused = segments.filter("estimated", ~pl.col("part").is_in(["data", "validation"]))
    pieces = _pieces(paused, samples, whole)
    if pieces.is_empty():
        return segments
    return pl.concat([segments.filter(~IS_UNKNOWN), _divided(unknown, pieces)]).sort("start")


def _inside(samples: pl.DataFrame, pauses: pl.DataFrame) -> pl.DataFrame:
    """Return the samples in the pauses."""
    joined = samples.sort("start").join_asof(pauses, on="start", strategy="backward")
    return joined.filter(pl.col("start") < pl.col("until"))


def _with_occasional(samples: pl.DataFrame, callers: Collection[tuple[str, int]]) -> pl.DataFrame:
    """Return the samples; those in models that are called from other lines than ``callers`` are OCCASIONAL there."""
    found = {
        stack: caller
        for stack in samples.filter(operation="forward")["stack"].unique().to_list()
        if callers
        and (caller := caller_of_modules(stack))
        and (PurePath(caller[0]).name, caller[2]) not in callers
    }
    if not found:
        return samples
    rows = [(stack, OCCASIONAL, file, line, name) for stack, (file, name, line) in found.items()]
    named = pl.DataFrame(rows, schema=["stack", *(f"{name}_" for name in LABEL)], orient="row")
    known = samples.join(named, on="stack", how="left")
    return known.with_columns(
        pl.coalesce(f"{name}_", name).cast(samples.schema[name]).alias(name) for name in LABEL
    ).select(samples.columns)


def _pieces(paused: pl.DataFrame, samples: pl.DataFrame, whole: int) -> pl.DataFrame:
    """Return lines with the share of the unknown time that each gets."""
    operation = pl.coalesce("operation", pl.lit(""))
    given = paused.filter(~IS_UNKNOWN).group_by(operation.alias("key")).agg(LENGTH.sum().alias("given"))
    paused_ns = int(paused.select(LENGTH.sum()).item())
    seen = samples.group_by(operation.alias("key")).agg(pl.col("weight").sum().alias("seen"))
    wanted = (pl.col("seen") * (paused_ns / whole) - pl.col("given").fill_null(0)).clip(0.0).alias("wanted")
    missing = seen.join(given, on="key", how="left").with_columns(wanted)
    lines = samples.group_by(*LABEL).agg(pl.col("weight").sum()).with_columns(operation.alias("key"))
    share = pl.col("wanted") * pl.col("weight") / pl.col("seen")
    placed = lines.join(missing, on="key").with_columns(share.alias("share")).filter(pl.col("share") > 0)
    largest = placed.sort("share", *LABEL, descending=[True] + [False] * len(LABEL)).head(MAX_PIECES)
    return largest.with_columns(pl.col("share") / pl.col("share").sum())


def _divided(unknown: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Return each unknown segment in pieces of these shares."""
    shares = [0.0, *pieces["share"].cum_sum().to_list()[:-1], 1.0]
    length = LENGTH
    found = []
    for (begin, end), row in zip(pairwise(shares), pieces.iter_rows(named=True), strict=True):
        operation = row["operation"]
        part = PART_OF_OPERATION.get(operation, PART_OF.get(operation or "", "python"))
        if operation == OCCASIONAL:
            part, operation = "validation", "forward"
        found.append(
            unknown.with_columns(
                (pl.col("start") + (length * begin).floor().cast(pl.Int64)).alias("start"),
                pl.when(pl.lit(end == 1.0))
                .then("end")
                .otherwise(pl.col("start") + (length * end).floor().cast(pl.Int64))
                .alias("end"),
                pl.lit(part).cast(unknown.schema["part"]).alias("part"),
                pl.lit(operation, pl.String).alias("operation"),
                pl.lit(row["file"], pl.String).alias("file"),
                pl.lit(row["line"], pl.Int32).alias("line"),
                pl.lit(row["function"], pl.String).alias("function"),
                pl.lit(None if operation else row["line"], pl.Int32).alias("until_line"),
            )
        )
    return pl.concat(found).filter(pl.col("end") > pl.col("start"))
