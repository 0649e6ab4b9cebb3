"""Steps that get slower because a section of the program's own code does."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.growth import MAX_JUMP_SHARE, median_slope
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer


class Rounds(Struct, frozen=True):
    """The time of one pass through a section at the start of the loop and at its end."""

    first_ns: float
    last_ns: float


class StepTimeTrend(Struct, frozen=True):
    """A section of Python that gets slower, and its effect on the steps; all in the steady loop."""

    gap: PythonGap
    rounds: Rounds
    parts: tuple[str, ...]
    """Parts of the account that grow with it, e.g. ``backward``; most growth first."""
    witness: str
    """The part of the account whose constant time shows that neither the machine nor the inputs are the cause."""
    first_ns: float
    """The time of a step at the start."""
    last_ns: float
    """The time of a step at the end."""
    share: float
    """The extra time compared with the first steps, over the account."""
    claims: pl.Expr
    """Segments of the growing parts, in the last steps: as much time as the extra time."""


MIN_RISE = 0.1
"""Minimum growth of a step over its time at the start."""
MIN_PARALLEL_RISE = 0.2
"""A part of the account grows with the section if it rises by this share of the section's own growth."""
CONTROL_PARTS = ("forward", "backward", "optimizer")
"""The first of these that takes MIN_CONTROL_SHARE of a step must stay constant: all of them grow if the machine slows
down, and the forward pass grows with its inputs."""
MIN_CONTROL_SHARE = 0.05
MAX_CONTROL_RISE = 0.25
"""It is constant if it rises by less than this share of the steps' rise."""
MIN_OWN_SHARE = 0.3
"""Share of the steps' rise that the section itself must have; what it feeds (the backward pass) may have the rest."""
MIN_STEPS_SHARE = 0.5
"""Share of the steps that must have the section: occasional ones are covered by slow_steps."""
GROUPS = 24
"""Number of groups of equally many steps into which the loop is divided."""
MIN_POINTS = 6
"""Minimum number of groups in each half."""
MIN_LATE_GROWTH = 0.3
"""Share of its total growth rate in the second half; with less it has levelled off, as buffers do."""
MIN_LOOP_NS = 4_000_000_000
"""A shorter loop says nothing about growth: caches and pools are still filling."""

LENGTH = pl.col("end") - pl.col("start")


def find_slowing(evidence: Evidence, trainer: Trainer) -> StepTimeTrend | None:
    """Return what grows together with the steps; None if nothing does, or if other causes are likely."""
    account = evidence.get(find_account, trainer)
    steady, segments = evidence.get(_seen, trainer)
    mean_ns = steady["duration"].mean()
    python = segments.filter(pl.col("part") == "python")
    found = [(gap, *_rounds(python, gap, steady)) for gap in evidence.get(find_python_gaps, trainer)]
    gap, rounds, added_ns = max(found, key=lambda one: one[2], default=(None, None, 0.0))
    if gap is None or rounds is None or not isinstance(mean_ns, float) or account.total_ns < MIN_LOOP_NS:
        return None
    names = [part for part in segments["part"].unique().to_list() if part != "python"]
    rises = evidence.get(rises_of_parts, trainer)
    also = [
        part
        for part in names
        if part not in CONTROL_PARTS[:1] and rises[part][1] >= MIN_PARALLEL_RISE * added_ns
    ]
    rise_ns = added_ns + sum(rises[part][1] for part in also)
    first_ns = mean_ns - rise_ns / 2
    witness = next(
        (part for part in CONTROL_PARTS if rises.get(part, (0,))[0] >= MIN_CONTROL_SHARE * mean_ns), None
    )
    if (
        first_ns <= 0
        or rise_ns < MIN_RISE * first_ns
        or witness is None
        or added_ns < MIN_OWN_SHARE * rise_ns
    ):
        return None
    if rises[witness][1] / rises[witness][0] > MAX_CONTROL_RISE * rise_ns / first_ns:
        return None
    grows = gap.segments | pl.col("part").cast(pl.String).is_in(also)
    share = min(rise_ns / 2 / mean_ns, account.share_of(grows))
    return StepTimeTrend(
        gap=gap,
        rounds=rounds,
        parts=tuple(sorted(also, key=lambda part: -rises[part][1])),
        witness=witness,
        first_ns=first_ns,
        last_ns=first_ns + rise_ns,
        share=share,
        claims=grows & (pl.col("step") >= last_steps(account, grows, share * account.total_ns)),
    )


def forward_growth(evidence: Evidence, trainer: Trainer) -> float:
    """Return the time of the forward pass at the end over that at the start; 1 if unknown."""
    mean_ns, rise_ns = evidence.get(rises_of_parts, trainer).get("forward", (0.0, 0.0))
    return (mean_ns + rise_ns / 2) / (mean_ns - rise_ns / 2) if mean_ns > abs(rise_ns / 2) else 1.0


def rises_of_parts(evidence: Evidence, trainer: Trainer) -> dict[str, tuple[float, float]]:
    """Return each part's time in a step, and its rise over the loop, from the steps recorded in detail."""
    steady, segments = evidence.get(_seen, trainer)
    return _rises(segments, max(1, steady.height))


def _seen(evidence: Evidence, trainer: Trainer) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the steady, detailed steps, and their segments with the start of the step as ``since``."""
    steady = evidence.get(find_steps, trainer).table.filter("steady", "detailed")
    segments = evidence.get(find_account, trainer).segments.filter(~pl.col("estimated"))
    return steady, segments.join(steady.select(step="index", since="start"), on="step")


def _rounds(segments: pl.DataFrame, gap: PythonGap, steady: pl.DataFrame) -> tuple[Rounds | None, float]:
    """Return the growth of one pass through a section over the steps, and what it adds to a step.

    More passes, as in the longer episodes of a trained agent, are more work and not growth. The median of each group of
    steps counts, so that single long ones do not matter.
    """
    own = segments.filter(gap.segments)
    rounds = own.group_by("step").agg(LENGTH.mean().alias("ns"))
    if rounds.height < max(GROUPS, MIN_STEPS_SHARE * steady.height):
        return None, 0.0
    first, last = steady["index"][0], steady["index"][-1]
    group = ((pl.col("step") - first) * GROUPS // (last - first + 1)).alias("group")
    middle = rounds.group_by(group).agg(pl.col("ns").median()).sort("group")
    found = _growth(middle["group"].to_numpy(), middle["ns"].to_numpy())
    return found, 0.0 if found is None else (found.last_ns - found.first_ns) * own.height / steady.height


def _growth(group: NDArray[Any], ns: NDArray[Any]) -> Rounds | None:
    """Return the growth of a series; None if it does not grow throughout, or grows in one jump."""
    half = group.size // 2
    if half < MIN_POINTS:
        return None
    slope = median_slope(group, ns)
    first_ns, rise_ns = float(np.median(ns - slope * group)), slope * (GROUPS - 1)
    goes_on = slope > 0 and median_slope(group[half:], ns[half:]) >= MIN_LATE_GROWTH * slope
    # If all values before are below all values after, it is a jump.
    steps_up = np.minimum.accumulate(ns[::-1])[::-1][1:] - np.maximum.accumulate(ns)[:-1]
    if not goes_on or first_ns <= 0 or steps_up.max() > MAX_JUMP_SHARE * rise_ns:
        return None
    return Rounds(first_ns, first_ns + rise_ns)


def _rises(segments: pl.DataFrame, steps: int) -> dict[str, tuple[float, float]]:
    """Return each part's time in a step, and its rise over the loop, from the medians of the first and last third."""
    sums = segments.group_by("part", "since").agg(LENGTH.sum().alias("ns")).sort("since")
    return {part: _rise(one["ns"], steps) for (part,), one in sums.partition_by("part", as_dict=True).items()}


def _rise(ns: pl.Series, steps: int) -> tuple[float, float]:
    """Return the time per step, and its rise, from the times in each step that has it."""
    third = max(1, ns.len() // 3)
    early, late = (float(piece.median() or 0.0) for piece in (ns.head(third), ns.tail(third)))  # type: ignore[arg-type]
    # From the middle of the first third to that of the last is two thirds of the loop.
    return float(ns.sum()) / steps, (late - early) * 1.5 * ns.len() / steps


def last_steps(account: Account, grows: pl.Expr, ns: float) -> int:
    """Return the step from which the growing segments have that much time."""
    sums = (
        account.segments.filter(grows, pl.col("step").is_not_null())
        .group_by("step")
        .agg(LENGTH.sum().alias("ns"))
        .sort("step", descending=True)
    )
    within = sums.filter(pl.col("ns").cum_sum() <= ns)
    return int(within["step"][-1]) if within.height else int(sums["step"][0])
