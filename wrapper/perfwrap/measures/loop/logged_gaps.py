"""The parts of the program's own code between the phases that write logs, from call stack samples."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.loop.source_calls import writing_calls
from perfwrap.measures.loop.stacks import ALONE_SHARE, ENOUGH, OUTSIDE, gap_samples
from perfwrap.measures.trainers import Trainer

MIN_GAP_SHARE = 0.01
"""Share of the account below which a code section is ignored: it has hardly any samples."""


class LoggedGap(Struct, frozen=True):
    """A code section with samples on lines that write: ``logged`` of ``sampled``, and the line with most of them."""

    gap: PythonGap
    where: Line
    calls: tuple[str, ...]
    """The calls on the sampled lines, those with most samples first: ``print``, ``json.dump``."""
    logged: int
    sampled: int
    outside: bool
    """Whether py-spy sampled, which sees all lines equally."""

    @property
    def share(self) -> float:
        """The part of the account spent on writing, from the samples."""
        return self.gap.share * self.logged / self.sampled


def find_logged_gaps(evidence: Evidence, trainer: Trainer) -> tuple[LoggedGap, ...]:
    """Return the sections with samples on lines that write, most time first."""
    gaps = evidence.get(find_python_gaps, trainer)
    large = [gap for gap in gaps if gap.share >= MIN_GAP_SHARE]
    whole = sum(gap.share for gap in gaps)
    found = [_logged(evidence, trainer, gap, gap.share >= ALONE_SHARE * whole) for gap in large]
    return tuple(sorted((gap for gap in found if gap is not None), key=lambda gap: -gap.share))


def _logged(evidence: Evidence, trainer: Trainer, gap: PythonGap, alone: bool) -> LoggedGap | None:
    """Return the samples of writing in one code section; None without any, or with too few samples."""
    rows = gap_samples(evidence, trainer, gap, alone)
    sampled = int(rows["weight"].sum())
    if sampled < ENOUGH:
        return None
    lines = rows.group_by("file", "line").agg(pl.col("function").first(), pl.col("weight").sum())
    writing = [
        (row, calls)
        for row in lines.sort("weight", "file", "line", descending=[True, False, False]).iter_rows(named=True)
        if (calls := writing_calls(evidence.timeline.run, row["file"], row["line"]))
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
