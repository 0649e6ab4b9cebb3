"""What py-spy's samples say about the time of pauses that neither sums nor detailed steps explain.

Detailed steps explain too much where something long is rare, like a plot in each 300th step: a detailed step with it
makes it frequent, and detailed steps without it leave its time to the others. Samples in pauses then contradict them.
"""

from __future__ import annotations

import math
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
TRIMMED = ("forward", "backward", "optimizer", "python")
"""Parts whose time in pauses is cut where samples contradict it: both have names for them. Python's samples include
reads of values and copies, so they are an upper bound."""
MIN_TRIM_SAMPLES = 100
ERRORS, BIAS = 3.0, 1.1
"""A share of the time contradicts the samples if it is larger than BIAS times theirs by so many standard errors.
Measured in 17,769 samples of detailed steps: between 0.93 (backward) and 1.06 (forward) times their time."""
LABEL = ("operation", "file", "line", "function")
UNNAMED = (*LABEL, "name", "until_line", "after_operation", "before_operation")
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

    An operation gets what its share of the samples is above the time that it has already. One that has far more than
    its share loses what is above it.
    """
    pauses = sums.filter("rest").select("start", pl.col("end").alias("until")).unique().sort("start")
    samples = _inside(stacks.filter(pl.col("source") == OUTSIDE).rename({"time": "start"}), pauses)
    samples = samples.filter(~pl.col("operation").is_in(SUMMED).fill_null(False))
    samples = _with_occasional(samples, callers)
    whole = int(samples["weight"].sum())
    if whole < MIN_SAMPLES:
        return segments
    segments = _trimmed(segments, samples, whole)
    unknown = segments.filter(IS_UNKNOWN)
    total = int(segments.select(LENGTH.sum()).item() or 0)
    unknown_ns = int(unknown.select(LENGTH.sum()).item() or 0)
    if unknown_ns < MIN_SHARE * total or unknown.height > MAX_SEGMENTS:
        return segments
    paused = segments.filter("estimated", ~pl.col("part").is_in(["data", "validation"]))
    pieces = _pieces(paused, samples, whole)
    if pieces.is_empty():
        return segments
    return pl.concat([segments.filter(~IS_UNKNOWN), _divided(unknown, pieces)]).sort("start")


def _trimmed(segments: pl.DataFrame, samples: pl.DataFrame, whole: int) -> pl.DataFrame:
    """Return the segments; of operations with far more time than samples, the excess is unknown time.

    Samples of validations in pauses are among the others, at most twice as many as the validations' time says.
    """
    lengths = segments.filter("estimated").group_by("part").agg(LENGTH.sum()).rows()
    validation = sum(ns for part, ns in lengths if part == "validation")
    paused_ns = sum(ns for part, ns in lengths if part not in ("data", "validation"))
    known = whole * (1.0 - 2.0 * validation / (paused_ns + validation)) if paused_ns else 0.0
    if known < MIN_TRIM_SAMPLES:
        return segments
    key = pl.when(~IS_UNKNOWN).then(pl.col("part").cast(pl.String))
    given = dict(segments.filter("estimated").group_by(key.alias("key")).agg(LENGTH.sum()).iter_rows())
    parts = pl.col("operation").replace_strict({**PART_OF, **PART_OF_OPERATION}, default="python")
    seen = dict(samples.group_by(parts.alias("key")).agg(pl.col("weight").sum()).iter_rows())
    kept = {}
    for name in TRIMMED:
        share, fair = given.get(name, 0) / paused_ns, min(1.0, seen.get(name, 0) / known)
        if share > BIAS * fair + ERRORS * math.sqrt(max(fair * (1.0 - fair), 1.0 / known) / known):
            kept[name] = fair / share
    if not kept:
        return segments
    part = (
        pl.when("estimated")
        .then(key.replace_strict(kept, default=1.0, return_dtype=pl.Float64))
        .otherwise(1.0)
    )
    cut = pl.col("start") + (LENGTH * part).floor().cast(pl.Int64)
    nothing = [pl.lit(None, segments.schema[name]).alias(name) for name in UNNAMED]
    excess = segments.with_columns(
        cut.alias("start"), pl.lit("python").cast(segments.schema["part"]).alias("part")
    )
    excess = excess.with_columns(nothing)
    rest = segments.with_columns(cut.alias("end"))
    return pl.concat([each.filter(LENGTH > 0) for each in (rest, excess)]).sort("start")


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
