"""What is known of the steps during which detailed recording was paused, and what only detailed steps show.

A pause knows how many steps it had and how long they waited for batches, without lines. For most other operations it
knows only the total: the time of the pause minus those waits. Detailed steps, recorded every few hundred steps, show
which lines there are and how the time is divided among them.
"""

from __future__ import annotations

import polars as pl

from perfwrap.measures.steps.phases import Phases

PAUSED = (
    *("forward", "backward", "recompute", "optimizer", "zero_grad", "sync", "clip", "scheduler", "transfer"),
    "gradient",
)
"""Operations whose recording pauses. If one of them was summed anyway, the sum counts."""

MAX_SHARES = 60
"""How many pieces of detail share the remaining time of a pause; the others are small."""

BEGINNINGS = ("loader_start", "data", "data_end")
"""Operations of a loader; a pause ends where one of its iterations starts or ends."""

LABEL = ("file", "line", "function")
AMOUNTS = ("count", "duration")


def with_lines(sums: pl.DataFrame, spans: pl.DataFrame, phases: Phases) -> pl.DataFrame:
    """Return the sums with ``validating``; those of pauses are divided among the lines of the detailed steps.

    Each sum keeps its exact total, split into one row per line. ``validating`` says that the section is in a validation
    phase: pauses never extend beyond the start or the end of one.
    """
    middle = ((sums["start"] + sums["end"]) // 2).to_numpy()
    marked = sums.with_columns(validating=pl.Series(phases.contain(middle), dtype=pl.Boolean))
    lost = marked["rest"] & marked["file"].is_null()
    if not lost.any():
        return marked
    seen = spans.filter(pl.col("file").is_not_null()).select("operation", "name", *LABEL, "duration", "start")
    inside = pl.Series(phases.contain(seen["start"].to_numpy()), dtype=pl.Boolean)
    key = ["operation", "name", "validating"]
    lines = (
        seen.with_columns(validating=inside)
        .group_by(*key, *LABEL)
        .agg(pl.len().cast(pl.Int64).alias("weight_count"), pl.col("duration").sum().alias("weight_duration"))
        .sort(*key, *LABEL)
    )
    rows = marked.filter(lost).with_row_index("row").drop(LABEL)
    found = rows.join(lines, on=key, how="left", nulls_equal=True, maintain_order="left_right")
    shared = found.with_columns(_share(amount).over("row").alias(amount) for amount in AMOUNTS)
    return pl.concat([marked.filter(~lost), shared.select(marked.columns)]).sort("start", maintain_order=True)


def _share(amount: str) -> pl.Expr:
    """Return a row's part of an amount by its weight: integers that add up to the amount."""
    weight = pl.col(f"weight_{amount}").fill_null(1).clip(1)
    # Not in integers: a product of two durations exceeds 64 bits after seconds.
    end = (pl.col(amount) * (weight.cum_sum() / weight.sum())).round().cast(pl.Int64)
    return end - end.shift(1, fill_value=0)


MAX_OVER_DETAIL = 1.5
"""Operations that were not recorded in a pause get at most this factor of their time in detailed steps; the rest of a
longer time is unknown."""


def leftovers(
    detailed: pl.DataFrame, sums: pl.DataFrame, left: pl.DataFrame, labels: tuple[str, ...]
) -> pl.DataFrame:
    """Return the remaining time of each pause, divided as in the detailed steps.

    ``detailed`` are detailed segments with ``ns``; ``sums`` have the number of their ``section``; ``left`` has the
    nanoseconds ``left`` of each and its number of ``steps``. A pause includes validations without a loader: they get
    the time that it takes longer than its steps would in detail. Returns section, part, the labels, and the nanoseconds
    ``given``.
    """
    validating = detailed.filter(pl.col("part") == "validation")
    if validating["operation"].is_in(BEGINNINGS).any():
        validating = validating.clear()
    outside = detailed.filter(~pl.col("part").is_in(["validation", "perfwrap"]))
    steps = max(1, outside["step"].n_unique())
    shares = _shares(
        outside.filter(pl.col("operation").is_null() | pl.col("operation").is_in(PAUSED)), labels
    )
    usual = int(shares["ns"].sum()) / steps * pl.col("steps")
    most = MAX_OVER_DETAIL * int(validating["ns"].sum()) / steps * pl.col("steps")
    surplus = (pl.col("left") - usual).clip(0.0, most).alias("validating")
    left = left.with_columns(surplus)
    summed = sums.filter(pl.col("duration") > 0).select("section", "operation").unique()
    rested = left.join(shares, how="cross").join(summed, on=["section", "operation"], how="anti")
    whole = pl.col("ns").sum().over("section")
    cap = MAX_OVER_DETAIL * whole / steps * pl.col("steps")
    given = pl.min_horizontal(pl.col("left") - pl.col("validating"), cap) * pl.col("ns") / whole
    validated = left.join(_shares(validating, labels), how="cross").with_columns(
        (pl.col("validating") * pl.col("ns") / whole).alias("given")
    )
    return (
        pl.concat([rested.with_columns(given.alias("given")), validated])
        .with_columns(pl.col("given").floor().cast(pl.Int64))
        .filter(pl.col("given") > 0)
        .select("section", "part", *labels, "given")
    )


def _shares(detailed: pl.DataFrame, labels: tuple[str, ...]) -> pl.DataFrame:
    """Return the largest pieces of detail with their nanoseconds."""
    return (
        detailed.group_by("part", *labels)
        .agg(pl.col("ns").sum())
        .sort("ns", *labels, descending=True)
        .head(MAX_SHARES)
    )
