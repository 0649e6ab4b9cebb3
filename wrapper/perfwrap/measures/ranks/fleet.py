"""Many ranks compared with each other, from their step tables: which is slowest, in what, and since when.

Reads a few columns of one table at a time, so that its memory grows with the steps of one rank and not with the number
of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.timeline.step_tables import PARTS, StepTable, Summary

MIN_STEPS = 20
"""Steps recorded in detail on all ranks that a comparison needs."""
NO_RANK = -1


class FleetRank(Struct, frozen=True):
    """One rank; times are means over its steady, detailed steps, None if there are none."""

    summary: Summary
    own_ns: float | None
    """The time of a step in its own work: without the parts in which it may wait for others."""
    parts_ns: dict[str, float]
    slowest_share: float | None = None
    """Share of the compared steps in which its own work took longest."""


class Fleet(Struct, frozen=True):
    """All ranks of a run, by rank; ``compared`` is how many steps all of them have in detail."""

    ranks: tuple[FleetRank, ...]
    compared: int
    lost_ns: float | None
    """Mean extra time of the slowest rank's own work in a step over the mean of all ranks."""
    late: FleetRank | None
    """The rank with the most work of its own."""
    usual_own_ns: float | None
    """The own work of the median rank."""

    @property
    def account_ns(self) -> dict[str, int]:
        """Nanoseconds of each part, summed over all ranks."""
        accounts = [rank.summary.account_ns for rank in self.ranks]
        return {part: sum(account.get(part, 0) for account in accounts) for part in PARTS}

    def more(self, rank: FleetRank) -> dict[str, float]:
        """Return the extra time of a rank over the median rank for each part, largest first."""
        usual = {
            part: float(np.median([other.parts_ns.get(part, 0.0) for other in self.ranks])) for part in PARTS
        }
        found = {part: rank.parts_ns.get(part, 0.0) - usual[part] for part in PARTS}
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def find_fleet(tables: Sequence[StepTable]) -> Fleet:
    """Return the ranks of these tables, compared with each other."""
    ordered = sorted(
        tables, key=lambda table: (table.summary.rank is None, table.summary.rank or 0, table.path)
    )
    length = max((table.summary.steps for table in ordered), default=0)
    longest = _LongestOwnWork(length)
    ranks = [_rank(table, number, longest) for number, table in enumerate(ordered)]
    common = longest.seen == len(ranks)
    compared = int(common.sum())
    if compared < MIN_STEPS or len(ranks) < 2:
        return Fleet(tuple(ranks), compared, None, None, None)
    wins = np.bincount(longest.slowest[common], minlength=len(ranks))
    ranks = [
        FleetRank(rank.summary, rank.own_ns, rank.parts_ns, float(won) / compared)
        for rank, won in zip(ranks, wins, strict=True)
    ]
    usual = float(np.median([rank.own_ns for rank in ranks if rank.own_ns is not None]))
    lost = max(0.0, float(longest.longest[common].mean()) - float(longest.total[common].mean()) / len(ranks))
    late = max(ranks, key=lambda rank: rank.own_ns or 0.0)
    return Fleet(tuple(ranks), compared, lost, late, usual)


class _LongestOwnWork:
    """For each step, the rank whose own work took longest so far."""

    def __init__(self, length: int) -> None:
        self.seen: NDArray[np.int32] = np.zeros(length, dtype=np.int32)
        self.longest: NDArray[np.int64] = np.zeros(length, dtype=np.int64)
        self.total: NDArray[np.int64] = np.zeros(length, dtype=np.int64)
        self.slowest: NDArray[np.int32] = np.full(length, NO_RANK, dtype=np.int32)

    def add(self, number: int, steps: NDArray[np.int64], own: NDArray[np.int64]) -> None:
        """Add one rank's steps."""
        self.seen[steps] += 1
        self.total[steps] += own
        ahead = own > self.longest[steps]
        self.longest[steps[ahead]] = own[ahead]
        self.slowest[steps[ahead]] = number


def _rank(table: StepTable, number: int, longest: _LongestOwnWork) -> FleetRank:
    """Return one rank's means, and add its steps to ``longest``."""
    names = [f"{part}_ns" for part in PARTS]
    rows = (
        table.scan()
        .filter("steady", "detailed", pl.col("own_ns").is_not_null())
        .select("step", "own_ns", *names)
    )
    found = rows.collect()
    if found.is_empty():
        return FleetRank(table.summary, None, {})
    longest.add(number, found["step"].to_numpy(), found["own_ns"].to_numpy())
    means = found.select(pl.col(*names).mean()).row(0)
    own = float(found["own_ns"].mean())  # type: ignore[arg-type]
    return FleetRank(table.summary, own, dict(zip(PARTS, means, strict=True)))
