"""Sections of the program that take longer each time, although they run rarely or in a validation; checkpoints too.

A section is the program's own code between two recorded events, or one line's calls of torch.save. If no single section
grows, all that is not training is looked at as one section, and named by its samples: the account does not divide the
own code of a validation, and code that calls the model is in many sections. Its time in a step is compared with that of
the model's training in the same part of the loop, so the machine's drift does not matter. Only recorded times count,
not estimated ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
import polars as pl

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_events import Flags
from perfwrap.measures.account.loop_figures import busiest_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.model_work import MODEL_PARTS, is_model_constant
from perfwrap.measures.loop.python_gaps import KEY, PythonGap
from perfwrap.measures.loop.slowing import MIN_LOOP_NS, last_steps
from perfwrap.measures.loop.stacks import OUTSIDE, HotFunction, Sampled, gap_samples, sampled
from perfwrap.measures.loop.trend import GROUPS, MIN_FACTOR, MIN_GROUPS, Numbers, find_trend, rises
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
MIN_MAIN_SHARE = 0.5
"""Share of the samples of all that is not training that one function must have to be named."""
MIN_VALIDATION_SHARE = 0.8
"""Share of its time in validations from which a validation is named without samples."""
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


@dataclass(frozen=True)
class GrowingSection:
    """A section with its growth in the steady loop; times are those of one occurrence."""

    kind: Kind
    gap: PythonGap | None
    """The section of own code; None for the other kinds."""
    where: Line | None
    """The line of the event before it, the line that saves, or the model's line in the validation; None if the samples
    name the function."""
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


@dataclass(frozen=True)
class _Series:
    """The time of a section in some steps, and that of the model in them; 0 where it is unknown."""

    step: Numbers
    own: Numbers
    control: Numbers


@dataclass(frozen=True)
class _Rise:
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
        rise = _rise(_series(_known_validations(segments), IS_NO_TRAINING))
        whole = rise and _all_but_training(evidence, trainer, rise, segments)
        found = [whole] if whole else []
    return tuple(sorted(found, key=lambda one: -one.share))


def _segments_of(row: dict[str, Any]) -> pl.Expr:
    """Select the segments of one section."""
    own = IS_SAVE if row["operation"] == SAVE else IS_OWN_CODE
    return reduce(lambda found, name: found & pl.col(name).eq_missing(pl.lit(row[name])), KEY, own)


def _known_validations(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the segments of the steps without a validation, or with one that was recorded in detail.

    In the others the model's work cannot be separated from the program's own code.
    """
    computes = IN_VALIDATION & (pl.col("operation") == "forward").fill_null(False)
    if not segments.select(computes.any()).item():
        return segments
    return segments.filter(~IN_VALIDATION.any().over("step") | computes.any().over("step"))


def _series(segments: pl.DataFrame, own: pl.Expr) -> _Series:
    """Return the series of a section over the steps: the detailed ones, and others whose section was recorded.

    The model's time is known for the detailed ones only.
    """
    is_model = pl.col("part").cast(pl.String).is_in(MODEL_PARTS) & pl.col("detailed")
    rows = (
        segments.group_by("step")
        .agg(
            LENGTH.filter(own).sum().alias("own"),
            LENGTH.filter(is_model).sum().alias("control"),
            pl.col("detailed").first(),
        )
        .filter(pl.col("detailed") | (pl.col("own") > 0))
        .sort("step")
    )
    return _Series(*(rows[name].to_numpy() for name in ("step", "own", "control")))


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
    trend = find_trend(own, np.where(control > 0, control, np.median(known)))
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
    rows = gap_samples(evidence.timeline, trainer, account, gap, False)
    return _made(account, "section", gap, where, sampled(rows.filter(pl.col("time") >= half)), rise, segments)


def _half(evidence: Evidence, trainer: Trainer, rise: _Rise) -> int:
    """Return when the middle occurrence began."""
    table = evidence.get(find_steps, trainer).table
    return int(table.filter(pl.col("index") == int(rise.steps[rise.steps.size // 2]))["start"][0])


def _all_but_training(
    evidence: Evidence, trainer: Trainer, rise: _Rise, segments: pl.DataFrame
) -> GrowingSection | None:
    """Return all that is not training as one section, if it is known where it grows.

    One function must have most samples, and more of them in the second half; without samples, nearly all of the time
    must be that of validations. The model's own work in validations must be constant.
    """
    account = evidence.get(find_account, trainer)
    middle = int(rise.steps[rise.steps.size // 2])
    computes = segments.filter(IN_VALIDATION, pl.col("operation") == "forward")
    work = computes.group_by("step").agg(LENGTH.sum().alias("ns"))
    early, late = (work.filter((pl.col("step") < middle) == flag)["ns"].median() for flag in (True, False))
    if isinstance(early, float) and isinstance(late, float) and late > MIN_FACTOR * early:
        return None
    half = _half(evidence, trainer, rise)
    rows = evidence.timeline.stacks.filter(
        pl.col("track") == trainer.thread,
        pl.col("source") == OUTSIDE,
        pl.col("operation").is_null(),
        pl.col("file").is_not_null(),
    )
    rows = rows.filter(pl.Series(account.holds(rows["time"].to_numpy()), dtype=pl.Boolean))
    before, after = rows.filter(pl.col("time") < half), rows.filter(pl.col("time") >= half)
    found, where = sampled(after), None
    if found is not None and found.functions:
        hottest = found.functions[0]
        is_main = hottest.count >= MIN_MAIN_SHARE * found.count
        if not is_main or hottest.count < MIN_FACTOR * _samples_in(before, hottest):
            return None
    else:
        own_ns = segments.filter(IS_NO_TRAINING, pl.col("step").is_in(rise.steps.tolist()))
        in_validation = own_ns.filter(IN_VALIDATION).select(LENGTH.sum()).item()
        if in_validation < MIN_VALIDATION_SHARE * own_ns.select(LENGTH.sum()).item():
            return None
        where = busiest_line(account, "validation")
    claimed = IS_NO_TRAINING & pl.col("step").is_in(rise.steps.tolist())
    return _made(account, "rest", None, where, found, rise, claimed)


def _samples_in(rows: pl.DataFrame, function: HotFunction) -> int:
    """Return the number of samples in a function."""
    here = (pl.col("file") == function.line.file) & (pl.col("function") == function.line.function)
    return int(rows.filter(here)["weight"].sum())


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
