"""Steps that take longer and longer, because a stretch of the program's own code does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from perfwrap.measures.account import Account
from perfwrap.measures.growth import MOST_AT_ONCE, median_slope
from perfwrap.measures.python_gaps import PythonGap
from perfwrap.measures.steps import Steps


@dataclass(frozen=True)
class Rounds:
    """How long one round through a stretch takes at the beginning of the loop and at its end."""

    first_ns: float
    last_ns: float


@dataclass(frozen=True)
class Slowing:
    """A stretch of Python whose rounds grow, and what that does to the steps; all of the steady loop."""

    gap: PythonGap
    rounds: Rounds
    parts: tuple[str, ...]
    """Parts of the account that grow with it, e.g. ``backward``; most growth first."""
    witness: str
    """The part of the account whose evenness shows that neither the machine nor the inputs are the reason."""
    first_ns: float
    """A step at the beginning."""
    last_ns: float
    """A step at the end."""
    share: float
    """The time beyond steps as they were at the beginning, over the account."""
    claims: pl.Expr
    """Segments of what grows, of the last steps: as much time as is beyond."""


LEAST_RISE = 0.1
"""Growth of a step, over its time at the beginning, from which it is one."""
ALSO_GROWS = 0.2
"""A part of the account grows with the stretch when it rises by this part of the stretch's own growth."""
WITNESSES = ("forward", "backward", "optimizer")
"""The first of these that takes WITNESS_SHARE of a step must stay as it is: all of them grow when the machine slows
down, and the forward pass grows with its inputs."""
WITNESS_SHARE = 0.05
UNMOVED = 0.25
"""It stays as it is when it rises by less than this part of the steps' rise."""
LEAST_PART = 0.3
"""Part of the steps' rise that the stretch must hold itself; what it feeds (the backward pass) may hold the rest."""
MOST_STEPS = 0.5
"""Share of the steps that must have the stretch: what comes now and then is told by slow_steps."""
GROUPS = 24
"""Into so many groups of as many steps the loop is cut."""
LEAST_POINTS = 6
"""So many of them each half must have."""
GOES_ON = 0.3
"""In the second half it must grow by this part of its growth in all; else it has levelled off, as buffers do."""
LEAST_NS = 4_000_000_000
"""A shorter loop says nothing of growth: caches and pools still fill."""

LENGTH = pl.col("end") - pl.col("start")


def find_slowing(steps: Steps, account: Account, gaps: Iterable[PythonGap]) -> Slowing | None:
    """Return what grows, and the steps with it; None where nothing does, or other reasons for it are likely."""
    steady, segments = _seen(steps, account)
    mean_ns = steady["duration"].mean()
    found = [(gap, *_rounds(segments, gap, steady)) for gap in gaps]
    gap, rounds, added_ns = max(found, key=lambda one: one[2], default=(None, None, 0.0))
    if gap is None or rounds is None or not isinstance(mean_ns, float) or account.total_ns < LEAST_NS:
        return None
    names = [part for part in segments["part"].unique().to_list() if part != "python"]
    rises = {part: _rise(segments, part, steady.height) for part in names}
    also = [part for part in names if part not in WITNESSES[:1] and rises[part][1] >= ALSO_GROWS * added_ns]
    rise_ns = added_ns + sum(rises[part][1] for part in also)
    first_ns = mean_ns - rise_ns / 2
    witness = next((part for part in WITNESSES if rises.get(part, (0,))[0] >= WITNESS_SHARE * mean_ns), None)
    if first_ns <= 0 or rise_ns < LEAST_RISE * first_ns or witness is None or added_ns < LEAST_PART * rise_ns:
        return None
    if rises[witness][1] / rises[witness][0] > UNMOVED * rise_ns / first_ns:
        return None
    grows = gap.segments | pl.col("part").cast(pl.String).is_in(also)
    share = min(rise_ns / 2 / mean_ns, account.share_of(grows))
    return Slowing(
        gap=gap,
        rounds=rounds,
        parts=tuple(sorted(also, key=lambda part: -rises[part][1])),
        witness=witness,
        first_ns=first_ns,
        last_ns=first_ns + rise_ns,
        share=share,
        claims=grows & (pl.col("step") >= _last_steps(account, grows, share * account.total_ns)),
    )


def forward_growth(steps: Steps, account: Account) -> float:
    """Return how many times as long as at the beginning the forward pass takes at the end; 1 if unknown."""
    steady, segments = _seen(steps, account)
    mean_ns, rise_ns = _rise(segments, "forward", max(1, steady.height))
    return (mean_ns + rise_ns / 2) / (mean_ns - rise_ns / 2) if mean_ns > abs(rise_ns / 2) else 1.0


def _seen(steps: Steps, account: Account) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the steady steps in detail, and their segments with the beginning of the step as ``since``."""
    steady = steps.table.filter("steady", "detailed")
    segments = account.segments.filter(~pl.col("estimated"))
    return steady, segments.join(steady.select(step="index", since="start"), on="step")


def _rounds(segments: pl.DataFrame, gap: PythonGap, steady: pl.DataFrame) -> tuple[Rounds | None, float]:
    """Return the growth of one round of a stretch over the steps, and what it adds to a step.

    More rounds, as in the longer episodes of an agent that has learnt, are more work and no growth. Of groups of as
    many steps the median counts, so that single long ones do not matter.
    """
    own = segments.filter(gap.segments)
    rounds = own.group_by("step").agg(LENGTH.mean().alias("ns"))
    if rounds.height < max(GROUPS, MOST_STEPS * steady.height):
        return None, 0.0
    first, last = steady["index"][0], steady["index"][-1]
    group = ((pl.col("step") - first) * GROUPS // (last - first + 1)).alias("group")
    middle = rounds.group_by(group).agg(pl.col("ns").median()).sort("group")
    found = _growth(middle["group"].to_numpy(), middle["ns"].to_numpy())
    return found, 0.0 if found is None else (found.last_ns - found.first_ns) * own.height / steady.height


def _growth(group: NDArray[Any], ns: NDArray[Any]) -> Rounds | None:
    """Return the growth of a series; None where it does not grow all the way, or at once."""
    half = group.size // 2
    if half < LEAST_POINTS:
        return None
    slope = median_slope(group, ns)
    first_ns, rise_ns = float(np.median(ns - slope * group)), slope * (GROUPS - 1)
    goes_on = slope > 0 and median_slope(group[half:], ns[half:]) >= GOES_ON * slope
    # All before it below all after it: at once.
    steps_up = np.minimum.accumulate(ns[::-1])[::-1][1:] - np.maximum.accumulate(ns)[:-1]
    if not goes_on or first_ns <= 0 or steps_up.max() > MOST_AT_ONCE * rise_ns:
        return None
    return Rounds(first_ns, first_ns + rise_ns)


def _rise(segments: pl.DataFrame, part: str, steps: int) -> tuple[float, float]:
    """Return a part's time in a step, and its rise over the loop, from the medians of the first and last third."""
    sums = (
        segments.filter(pl.col("part") == part).group_by("since").agg(LENGTH.sum().alias("ns")).sort("since")
    )
    third = max(1, sums.height // 3)
    early, late = (float(piece["ns"].median() or 0.0) for piece in (sums.head(third), sums.tail(third)))  # type: ignore[arg-type]
    # From the middle of the first third to that of the last it is two thirds of the way.
    return float(sums["ns"].sum()) / steps, (late - early) * 1.5 * sums.height / steps


def _last_steps(account: Account, grows: pl.Expr, ns: float) -> int:
    """Return the step from which on the growing segments hold that much time."""
    sums = (
        account.segments.filter(grows, pl.col("step").is_not_null())
        .group_by("step")
        .agg(LENGTH.sum().alias("ns"))
        .sort("step", descending=True)
    )
    within = sums.filter(pl.col("ns").cum_sum() <= ns)
    return int(within["step"][-1]) if within.height else int(sums["step"][0])
