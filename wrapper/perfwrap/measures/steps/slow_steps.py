"""Steps much slower than the median, and the part that takes longer in each."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS
from perfwrap.measures.account.parts import PARTS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.profiler_calls import recorded_steps
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline


class SlowStep(Struct, frozen=True):
    """One slow step and the part that explains most of its extra time over the median step."""

    index: int
    start: int
    duration_ns: int
    excess_ns: int
    cause: str
    """A part of the account, ``epoch start`` (a new iterator of the training loader), ``OTHER_TRAINING``, ``PROFILED``,
    or ``unexplained``."""
    cause_ns: int
    """The extra time of that part over a median step."""
    where: Line | None
    """The line with most of that part's time in this step."""


class SlowSteps(Struct, frozen=True):
    """The spread of the steady steps."""

    p50_ns: float
    p99_ns: float
    spread: float
    """p99 over p50."""
    slow: tuple[SlowStep, ...]
    """Steady, detailed steps above MIN_SLOWDOWN times the median, in order."""
    excess_ns: int
    """Extra time of the slow steps over the same number of median steps."""
    share: float
    """``excess_ns`` over the whole account."""
    causes: dict[str, int]
    """Extra time per cause, largest first."""


MIN_SLOWDOWN = 1.5
"""A step is slow from 1.5 times the median."""

MIN_EXPLAINED_SHARE = 0.5
"""Share of the extra time that a part must hold to explain a slow step."""

OTHER_TRAINING = "other training"
"""The cause of steps that train something at other lines, as a generator after every few steps of its critic."""

PROFILED = "profiled"
"""The cause of steps in which the same work took longer while the program's profiler recorded it."""

COMMON_SHARE = 0.1
"""A line is common if this share of the steps that are not slow has it."""

LENGTH = pl.col("end") - pl.col("start")


def find_slow_steps(evidence: Evidence, trainer: Trainer) -> SlowSteps | None:
    """Return the spread of the steady steps and the causes of slow ones; None without steady steps."""
    steps = evidence.get(find_steps, trainer)
    account = evidence.get(find_account, trainer)
    steady = steps.table.filter("steady", "detailed")
    middle = steps.detailed_quantile(0.5)
    if middle is None or steps.median_ns is None or steps.p99_ns is None:
        return None
    slow = steady.filter(pl.col("duration") > MIN_SLOWDOWN * middle)
    recorded = steps.table.filter(pl.Series(evidence.get(recorded_steps, trainer)))["index"]
    found = _explained(evidence.timeline, trainer, steady, slow, account, middle, set(recorded.to_list()))
    causes: dict[str, int] = {}
    for step in found:
        causes[step.cause] = causes.get(step.cause, 0) + step.excess_ns
    excess = sum(step.excess_ns for step in found)
    return SlowSteps(
        p50_ns=steps.median_ns,
        p99_ns=steps.p99_ns,
        spread=steps.p99_ns / steps.median_ns if steps.median_ns else 1.0,
        slow=found,
        excess_ns=excess,
        share=excess / max(1, account.total_ns),
        causes=dict(sorted(causes.items(), key=lambda item: -item[1])),
    )


def _explained(
    timeline: Timeline,
    trainer: Trainer,
    steady: pl.DataFrame,
    slow: pl.DataFrame,
    account: Account,
    middle: float,
    recorded: set[int],
) -> tuple[SlowStep, ...]:
    """Return each slow step with the part that has the most extra time over a median step."""
    wide = _parts_by_step(account, steady)
    usual = {part: float(wide[part].median() or 0.0) for part in PARTS}  # type: ignore[arg-type]
    epochs = _epoch_starts(timeline, trainer, slow)
    apart = _training_apart(account, steady, slow)
    rows = wide.join(slow.select("index", "start", "duration"), left_on="step", right_on="index").sort("step")
    busiest = _busiest_lines(account, slow)
    found = []
    for row in rows.iter_rows(named=True):
        more = {part: row[part] - usual[part] for part in PARTS}
        part = max(more, key=lambda name: more[name])
        excess = int(row["duration"] - middle)
        cause = "epoch start" if part == "data" and row["step"] in epochs else part
        if more[part] < MIN_EXPLAINED_SHARE * excess:
            cause = "unexplained"
        if part in COMPUTE_PARTS and apart.get(row["step"], 0) >= MIN_EXPLAINED_SHARE * excess:
            cause = OTHER_TRAINING
        if row["step"] in recorded and cause in (*COMPUTE_PARTS, "python", "unexplained"):
            cause = PROFILED
        where = busiest.get((row["step"], part))
        found.append(
            SlowStep(row["step"], row["start"], row["duration"], excess, cause, int(more[part]), where)
        )
    return tuple(found)


def _training_apart(account: Account, steady: pl.DataFrame, slow: pl.DataFrame) -> dict[int, int]:
    """Return, for slow steps with a backward pass at other lines, the nanoseconds of the model at such lines."""
    key = ["part", "file", "line"]
    at_lines = account.segments.filter(pl.col("part").is_in(COMPUTE_PARTS), pl.col("file").is_not_null())
    is_slow = pl.col("step").is_in(slow["index"].to_list())
    others = at_lines.filter(~is_slow, pl.col("step").is_in(steady["index"].to_list()))
    usual = (
        others.group_by(key)
        .agg(pl.col("step").n_unique())
        .filter(pl.col("step") >= COMMON_SHARE * (steady.height - slow.height))
    )
    apart = at_lines.filter(is_slow).join(usual, on=key, how="anti")
    sums = apart.group_by("step").agg(
        LENGTH.sum().alias("ns"), (pl.col("part") == "backward").any().alias("trains")
    )
    return dict(sums.filter("trains").select("step", "ns").iter_rows())


def _parts_by_step(account: Account, steady: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each part for each steady, detailed step."""
    sums = account.segments.group_by("step", "part").agg(LENGTH.sum().alias("ns"))
    wide = sums.with_columns(pl.col("part").cast(pl.String)).pivot(on="part", index="step", values="ns")
    missing = [pl.lit(0, pl.Int64).alias(part) for part in PARTS if part not in wide.columns]
    full = wide.with_columns(missing).with_columns(pl.col(PARTS).fill_null(0))
    return full.join(steady.select(pl.col("index").alias("step")), on="step")


def _epoch_starts(timeline: Timeline, trainer: Trainer, slow: pl.DataFrame) -> set[int]:
    """Return the slow steps in which a loader's iterator was created."""
    starts = thread_spans(timeline, trainer).filter(pl.col("operation") == "loader_start").select("start")
    step = pl.col("index").filter(pl.col("start") < pl.col("end"))
    made = starts.join_asof(
        slow.select("index", "end", since="start"), left_on="start", right_on="since", strategy="backward"
    )
    return set(made.select(step)["index"].to_list())


def _busiest_lines(account: Account, slow: pl.DataFrame) -> dict[tuple[int, str], Line | None]:
    """Return for each slow step and part of the account the line with most of that part's time."""
    key = ["step", "part"]
    lines = (
        account.segments.filter(pl.col("step").is_in(slow["index"].to_list()), pl.col("file").is_not_null())
        .group_by(*key, "file", "line", maintain_order=True)
        .agg(pl.col("function").first(), LENGTH.sum().alias("ns"))
        .sort("ns", "line", descending=True, maintain_order=True)
        .unique(key, keep="first")
        .select(*key, "file", "line", "function")
    )
    return {(step, part): line_of(*where) for step, part, *where in lines.iter_rows()}
