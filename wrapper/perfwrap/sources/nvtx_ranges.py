"""The meaning of NVTX ranges: steps, phases that the recorder names, functions of the framework, or other ranges."""

from __future__ import annotations

import polars as pl

MARK = "nvtx"
"""The name of marks that a program sets."""
RECORDER_DOMAIN = "perfwrap"
"""Domain of the recorder's ranges; the program's own ranges are there only if it uses the same name."""

WINDOW = "perfwrap_window"
"""The recorder's range around the steps that nsys captures; without a domain if there is no nvtx package."""

PHASES = {
    "data": "data",
    "loader_start": "data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "zero_grad": "optimizer",
}
"""Names of ranges that the recorder gives, and many programs too, each with its category."""

NUMBERED_STEP = r"(?i)^(?:profiler|train(?:ing)?)?[ _.-]?(?:step|iter|iteration|batch)[ _:#.=-]*(\d{1,9})$"
UNNUMBERED_STEP = r"(?i)^(?:profiler|train(?:ing)?)[ _.-]?(?:step|iter|iteration)$"
"""Names that programs give the ranges around a step."""
FRAMEWORK = r"^[A-Za-z_]\w*::[\w.]+(, \w+ = .*)?$|, (seq|op_id) = \d+"
"""Names of torch.autograd.profiler.emit_nvtx: ``aten::mm, op_id = 12``, ``AddmmBackward0, seq = 7``."""
DETAIL = r", (seq|op_id|sizes|input_op_ids) = .*$"


def may_be_step(names: pl.Series) -> pl.Series:
    """Return whether each range is a step by its name: it is one unless it is inside another."""
    known = names.unique()
    steps = known.filter(known.str.contains(NUMBERED_STEP) | known.str.contains(UNNUMBERED_STEP))
    return names.is_in(steps.implode()).fill_null(False)


def ranges(rows: pl.DataFrame, is_recorded: bool) -> pl.DataFrame:
    """Return rows of start, end, globalTid, name and domain with operation, category and step.

    If the recorder was active, its own ranges are dropped and the program's phases stay plain ranges: the recorder's
    spans have the same phases more precisely, and nothing may be counted twice.
    """
    rows = rows.join(
        _meanings(rows["name"].unique()), on="name", how="left", nulls_equal=True, maintain_order="left"
    )
    rows = rows.with_columns(_outermost(rows).alias("is_step"))
    is_default = pl.col("domain") == ""
    is_ours = pl.col("domain") == RECORDER_DOMAIN
    if is_recorded:
        rows = rows.filter(~is_ours, pl.col("name") != WINDOW)
    is_phase = (is_default | is_ours) & pl.col("phase").is_not_null() & pl.lit(not is_recorded)
    is_framework = is_default & pl.col("is_framework")
    return rows.with_columns(
        pl.when("is_step").then("step").alias("step"),
        pl.when("is_step")
        .then(pl.lit("step"))
        .when(is_phase)
        .then("phase")
        .otherwise(pl.lit("other"))
        .alias("category"),
        pl.when("is_step")
        .then(pl.lit("step"))
        .when(is_phase)
        .then("name")
        .when(is_framework)
        .then(pl.lit("op"))
        .otherwise(pl.lit("nvtx"))
        .alias("operation"),
        pl.when(is_framework).then("function").otherwise("name").alias("name"),
    ).drop("phase", "is_framework", "function")


def _meanings(names: pl.Series) -> pl.DataFrame:
    """Return what different names mean: most recordings have few, so that patterns are not tried for each range.

    Columns: name, step (its number), is_step, phase (its category), is_framework, function (the name without details).
    """
    name = pl.col("name")
    step = name.str.extract(NUMBERED_STEP).cast(pl.Int32, strict=False)
    return names.to_frame("name").select(
        name,
        step.alias("step"),
        (step.is_not_null() | name.str.contains(UNNUMBERED_STEP)).fill_null(False).alias("is_step"),
        name.replace_strict(PHASES, default=None, return_dtype=pl.String).alias("phase"),
        name.str.contains(FRAMEWORK).alias("is_framework"),
        name.str.replace(DETAIL, "").alias("function"),
    )


def _outermost(rows: pl.DataFrame) -> pl.Series:
    """Return for each row whether it is a step that is not inside another one, like ``batch 3`` in ``step 7``."""
    steps = rows.with_row_index("row").filter("is_step").sort("globalTid", "start", -pl.col("end"))
    before = pl.col("end").cum_max().shift(1).over("globalTid")
    chosen = steps.filter(before.is_null() | (pl.col("start") >= before))["row"]
    return pl.int_range(rows.height, dtype=pl.UInt32, eager=True).is_in(chosen.implode())
