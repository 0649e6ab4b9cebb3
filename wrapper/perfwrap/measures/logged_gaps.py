"""Which part of the program's own code between the phases writes logs, by samples of where the thread was."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line
from perfwrap.measures.python_gaps import PythonGap
from perfwrap.measures.source_calls import writing_calls
from perfwrap.measures.stacks import ENOUGH, OUTSIDE, gap_samples
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

LEAST_SHARE = 0.01
"""Share of the account below which a stretch is not looked at: such short ones have hardly a sample."""

ALONE_SHARE = 0.75
"""Share of the program's own code from which a stretch gets the samples of functions that it may have called, where
only innermost lines are known."""


@dataclass(frozen=True)
class LoggedGap:
    """A stretch with samples on lines that write: ``logged`` of ``sampled``, and the line with most of them."""

    gap: PythonGap
    where: Line
    calls: tuple[str, ...]
    """What the sampled lines call, those with most samples first: ``print``, ``json.dump``."""
    logged: int
    sampled: int
    outside: bool
    """Whether py-spy sampled, which sees all lines alike."""

    @property
    def share(self) -> float:
        """The part of the account that the samples give to writing."""
        return self.gap.share * self.logged / self.sampled


def find_logged_gaps(
    timeline: Timeline, trainer: Trainer, account: Account, gaps: tuple[PythonGap, ...]
) -> tuple[LoggedGap, ...]:
    """Return the stretches with samples on lines that write, most time first."""
    large = [gap for gap in gaps if gap.share >= LEAST_SHARE]
    whole = sum(gap.share for gap in gaps)
    found = [_logged(timeline, trainer, account, gap, gap.share >= ALONE_SHARE * whole) for gap in large]
    return tuple(sorted((gap for gap in found if gap is not None), key=lambda gap: -gap.share))


def _logged(
    timeline: Timeline, trainer: Trainer, account: Account, gap: PythonGap, alone: bool
) -> LoggedGap | None:
    """Return what was sampled of writing in one stretch; None for nothing, or for too few samples."""
    rows = gap_samples(timeline, trainer, account, gap, alone)
    sampled = int(rows["weight"].sum())
    if sampled < ENOUGH:
        return None
    lines = rows.group_by("file", "line").agg(pl.col("function").first(), pl.col("weight").sum())
    writing = [
        (row, calls)
        for row in lines.sort("weight", "file", "line", descending=[True, False, False]).iter_rows(named=True)
        if (calls := writing_calls(timeline.run, row["file"], row["line"]))
    ]
    if not writing:
        return None
    first = writing[0][0]
    return LoggedGap(
        gap=gap,
        where=Line(first["file"], first["line"], first["function"] or ""),
        calls=tuple(dict.fromkeys(call for _, calls in writing for call in calls)),
        logged=sum(row["weight"] for row, _ in writing),
        sampled=sampled,
        outside=OUTSIDE in rows["source"],
    )
