"""Sections of the program that take longer each time, although they run rarely or in a validation; checkpoints too.

A section is the program's own code between two recorded events, or one line's calls of torch.save. If no single section
grows, all that is not training is looked at as one section, and named by its samples: the account does not divide the
own code of a validation, and code that calls the model is in many sections. Its time in a step is compared with that of
the model's training in the same part of the loop, so the machine's drift does not matter. Only recorded times count,
not estimated ones.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_events import Flags
from perfwrap.measures.account.loop_figures import busiest_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.growing_lines import find_main_line
from perfwrap.measures.loop.model_work import MODEL_PARTS, is_model_constant
from perfwrap.measures.loop.python_gaps import KEY, PythonGap
from perfwrap.measures.loop.slowing import MIN_LOOP_NS, last_steps
from perfwrap.measures.loop.stacks import Sampled, gap_samples, sampled
from perfwrap.measures.loop.trend import (
    GROUPS,
    MIN_COMPARED_SCORE,
    MIN_FACTOR,
    MIN_GROUPS,
    Numbers,
    find_trend,
    rises,
)
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

MIN_SHARE = 0.01
"""Share of the account below which a section is ignored."""
RARE_FACTOR = 4.0
"""A section's time in a step is long if it is this many times the median of all steps."""
MIN_RARE_SHARE = 0.7
"""Share of the section's time in long steps from which it does its work only there: every k steps, after an epoch."""
MIN_STEPS_SHARE = 0.5
"""Share of the steps that must have the section otherwise."""
SAVE = "save"
LENGTH = pl.col("end") - pl.col("start")
IN_VALIDATION = pl.col("part") == "validation"
IS_OWN_CODE = (pl.col("part") == "python") & pl.col("operation").is_null()
IS_SAVE = (pl.col("part") == "checkpoint") & (pl.col("operation") == SAVE)
IS_NO_TRAINING = (pl.col("part").is_in(["python", "checkpoint"])) | (
    IN_VALIDATION
    & ~pl.col("operation").is_in(["forward", "data", "data_end", "loader_start"]).fill_null(False)
)


Kind = Literal["section", "save", "rest"]
"""A section of own code, a line that saves, or all that is not training."""


class GrowingSection(Struct, frozen=True):
    """A section with its growth in the steady loop; times are those of one occurrence."""

    kind: Kind
    gap: PythonGap | None
    """The section of own code; None for the other kinds."""
    where: Line | None
    """The line of the event before it, the line that saves, or the model's line in validations; None if unknown."""
    sampled: Sampled | None
    """The samples in it, of the second half of the loop."""
    first: tuple[int, float]
    """A step at the start, and the median time around it."""
    last: tuple[int, float]
    """The same at the end."""
    count: int
    """How many occurrences were recorded."""
    share: float
    """The extra time compared with the start, over the account."""
    is_linear: bool
    claims: pl.Expr
    """Segments of it in the last steps: as much time as the extra time."""


class _Series(Struct, frozen=True):
    """The time of a section in some steps, and that of the model in them; 0 where it is unknown."""

    step: Numbers
    own: Numbers
    control: Numbers


class _Rise(Struct, frozen=True):
    """The growth of a section, and the steps in which it does its work."""

    steps: Numbers
    extra: float
    """The share of the section's time that is more than at its start."""
    first: tuple[int, float]
    last: tuple[int, float]
    is_linear: bool


def find_growing_sections(evidence: Evidence, trainer: Trainer) -> tuple[GrowingSection, ...]:
    """Return the sections that grow while the model's work is constant, most extra time first."""
    account = evidence.get(find_account, trainer)
    if account.total_ns < MIN_LOOP_NS or not evidence.get(is_model_constant, trainer):
        return ()
    steady = (
        evidence.get(find_steps, trainer).table.filter("steady").select(step="index", detailed="detailed")
    )
    segments = account.segments.filter(~pl.col("estimated")).join(steady, on="step")
    own = segments.filter(IS_OWN_CODE | IS_SAVE, pl.col("file").is_not_null())
    large = own.group_by(*KEY, "operation").agg(LENGTH.sum().alias("ns"), pl.col("function").first())
    large = large.filter(pl.col("ns") >= MIN_SHARE * segments.select(LENGTH.sum()).item())
    found = []
    for row in large.sort("ns", *KEY, descending=True).iter_rows(named=True):
        rise = _rise(_series(segments, _segments_of(row)))
        if rise is not None:
            found.append(_section(evidence, trainer, row, rise))
    if not found:
        whole = _all_but_training(evidence, trainer, segments)
        found = [whole] if whole else []
    return tuple(sorted(found, key=lambda one: -one.share))


def _segments_of(row: dict[str, Any]) -> pl.Expr:
    """Select the segments of one section."""
    own = IS_SAVE if row["operation"] == SAVE else IS_OWN_CODE
    return reduce(lambda found, name: found & pl.col(name).eq_missing(pl.lit(row[name])), KEY, own)


def _series(segments: pl.DataFrame, own: pl.Expr) -> _Series:
    """Return the series of a section over the steps: the detailed ones, and others whose section was recorded.

    The model's time is known for the detailed ones only.
    """
    rows = _times(segments, own).filter(pl.col("detailed") | (pl.col("own") > 0))
    return _Series(*(rows[name].to_numpy() for name in ("step", "own", "control")))


def _validation_series(segments: pl.DataFrame) -> _Series | None:
    """Return the time without training in the steps with a validation; None if there are none, or they do more work.

    If a validation was not recorded in detail, its own time includes that of the model, which is that of the others.
    """
    rows = _times(segments, IS_NO_TRAINING)
    known = rows.filter(pl.col("computing") > 0)
    if known.is_empty():
        return None
    early, late = (
        (float(np.median(half)) for half in np.array_split(known["computing"].to_numpy(), 2))
        if known.height > 1
        else (1.0, 1.0)
    )
    if late > MIN_FACTOR * early:
        return None
    usual_ns = float(np.median(known["computing"].to_numpy()))
    unknown_ns = pl.when(pl.col("computing") > 0).then(0.0).otherwise(usual_ns)
    own = pl.when("validating").then((pl.col("own") - unknown_ns).clip(1.0)).otherwise(0.0)
    rows = rows.filter(pl.col("detailed") | pl.col("validating")).with_columns(own.alias("own"))
    return _Series(*(rows[name].to_numpy() for name in ("step", "own", "control")))


def _times(segments: pl.DataFrame, own: pl.Expr) -> pl.DataFrame:
    """Return for each step the time of a section, of the model's training, and of the model in a validation."""
    is_model = pl.col("part").cast(pl.String).is_in(MODEL_PARTS) & pl.col("detailed")
    computes = IN_VALIDATION & (pl.col("operation") == "forward").fill_null(False)
    sums = segments.group_by("step").agg(
        LENGTH.filter(own).sum().alias("own"),
        LENGTH.filter(is_model).sum().alias("control"),
        LENGTH.filter(computes).sum().alias("computing"),
        IN_VALIDATION.any().alias("validating"),
        pl.col("detailed").first(),
    )
    return sums.sort("step")


def _rise(series: _Series) -> _Rise | None:
    """Return the growth of a section; None if it does not grow.

    Either it takes longer in most steps, or it does its work in few steps, which take longer. In the former case the
    medians of many steps count, so the steps that another process interrupted do not matter.
    """
    is_there = series.own > 0
    long = series.own > RARE_FACTOR * np.median(series.own)
    usual = _rise_in(series, is_there) if is_there.mean() >= MIN_STEPS_SHARE else None
    if usual is None and series.own[long].sum() >= MIN_RARE_SHARE * series.own.sum():
        return _rise_in(series, long)
    return usual


def _rise_in(series: _Series, chosen: Flags) -> _Rise | None:
    """Return the growth of a section in the chosen steps; None if it does not grow."""
    groups = min(GROUPS, int(chosen.sum()))
    if groups < MIN_GROUPS:
        return None
    places = np.array_split(np.flatnonzero(chosen), groups)
    own = np.array([np.median(series.own[each]) for each in places])
    # All steps from a group's first occurrence to that of the next group tell how fast the machine was.
    ends = [*(each[0] for each in places[1:]), chosen.size]
    around = [series.control[each[0] : end] for each, end in zip(places, ends, strict=True)]
    control = np.array([np.median(each[each > 0]) if each.any() else 0 for each in around])
    known = control[control > 0]
    if not known.size or not rises(own):
        return None
    trend = find_trend(own, np.where(control > 0, control, np.median(known)), MIN_COMPARED_SCORE)
    if trend is None:
        return None
    start_ns = trend.first * float(np.median(known))
    extra_ns = sum(max(0.0, ns - start_ns) * each.size for ns, each in zip(own, places, strict=True))
    middle = [int(series.step[each[each.size // 2]]) for each in (places[0], places[-1])]
    return _Rise(
        steps=series.step[chosen],
        extra=min(1.0, extra_ns / float(series.own.sum())),
        first=(middle[0], float(own[0])),
        last=(middle[1], float(own[-1])),
        is_linear=trend.is_linear,
    )


def _section(evidence: Evidence, trainer: Trainer, row: dict[str, Any], rise: _Rise) -> GrowingSection:
    """Return the figures of a section that grows."""
    account = evidence.get(find_account, trainer)
    where = line_of(row["file"], row["line"], row["function"])
    segments, steps = _segments_of(row), evidence.get(find_steps, trainer)
    half = _half(evidence, trainer, rise)
    if row["operation"] == SAVE:
        rows = evidence.timeline.stacks.filter(
            pl.col("track") == trainer.thread,
            pl.col("operation") == SAVE,
            pl.col("file") == row["file"],
            pl.col("line") == row["line"],
        )
        return _made(
            account, "save", None, where, sampled(rows.filter(pl.col("time") >= half)), rise, segments
        )
    share = account.share_of(segments)
    gap = PythonGap(
        after=where,
        until_line=row["until_line"],
        after_operation=row["after_operation"] or "",
        before_operation=row["before_operation"] or "",
        count=rise.steps.size,
        per_step_ns=share * account.total_ns / max(1, steps.steady),
        total_ns=round(share * account.total_ns),
        share=share,
    )
    rows = gap_samples(evidence, trainer, gap, False)
    return _made(account, "section", gap, where, sampled(rows.filter(pl.col("time") >= half)), rise, segments)


def _half(evidence: Evidence, trainer: Trainer, rise: _Rise) -> int:
    """Return when the middle occurrence began."""
    table = evidence.get(find_steps, trainer).table
    return int(table.filter(pl.col("index") == int(rise.steps[rise.steps.size // 2]))["start"][0])


def _all_but_training(evidence: Evidence, trainer: Trainer, segments: pl.DataFrame) -> GrowingSection | None:
    """Return all that is not training as one section, if it grows and it is known where.

    In steps with validations, these are named if there are too few samples to name a line.
    """
    validations = _validation_series(segments)
    rise = validations and _rise(validations)
    validating = rise is not None
    rise = rise or _rise(_series(segments, IS_NO_TRAINING))
    if rise is None:
        return None
    account = evidence.get(find_account, trainer)
    found = find_main_line(evidence, trainer, _half(evidence, trainer, rise))
    if (found is None and not validating) or (found is not None and not found.functions):
        return None
    where = busiest_line(account, "validation") if validating else None
    claimed = IS_NO_TRAINING & pl.col("step").is_in(rise.steps.tolist())
    return _made(account, "rest", None, where, found, rise, claimed)


def _made(
    account: Account,
    kind: Kind,
    gap: PythonGap | None,
    where: Line | None,
    found: Sampled | None,
    rise: _Rise,
    segments: pl.Expr,
) -> GrowingSection:
    """Return the finding's figures; steps without detail have the section in the ratio of the detailed steps."""
    share = rise.extra * account.share_of(segments)
    return GrowingSection(
        kind=kind,
        gap=gap,
        where=where,
        sampled=found,
        first=rise.first,
        last=rise.last,
        count=rise.steps.size,
        share=share,
        is_linear=rise.is_linear,
        claims=segments & (pl.col("step") >= last_steps(account, segments, share * account.total_ns)),
    )
