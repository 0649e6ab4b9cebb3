"""The time that the program's own code between the phases writes logs, from call stack samples."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import trains_on_gpu
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


class LoggedSamples(Struct, frozen=True):
    """py-spy's samples of the training thread outside of recorded calls on lines that write: ``count`` of ``sampled``.

    ``sampled`` are all samples of the training thread in the loop.
    """

    where: Line
    calls: tuple[str, ...]
    count: int
    sampled: int

    @property
    def share(self) -> float:
        """The part of the loop spent on writing."""
        return self.count / self.sampled


def find_logged_samples(evidence: Evidence, trainer: Trainer) -> LoggedSamples | None:
    """Return all samples on lines that write, wherever in the loop; None with too few.

    None too on a GPU, where such a line may wait for the values that it writes.
    """
    if trains_on_gpu(evidence, trainer):
        return None
    account = evidence.get(find_account, trainer)
    rows = evidence.timeline.stacks.filter(
        pl.col("time").is_between(account.start, account.end, closed="left"),
        pl.col("track") == trainer.thread,
        pl.col("source") == OUTSIDE,
    )
    writing = _on_writing_lines(evidence, rows.filter(pl.col("operation").is_null()))
    count = sum(weight for _, _, weight in writing)
    if count < ENOUGH:
        return None
    calls = tuple(dict.fromkeys(call for _, found, _ in writing for call in found))
    return LoggedSamples(writing[0][0], calls, count, int(rows["weight"].sum()))


def _on_writing_lines(evidence: Evidence, rows: pl.DataFrame) -> list[tuple[Line, tuple[str, ...], int]]:
    """Return the lines that write, with their calls and samples, those with most samples first."""
    lines = (
        rows.filter(pl.col("file").is_not_null(), pl.col("line").is_not_null())
        .group_by("file", "line")
        .agg(pl.col("function").first(), pl.col("weight").sum())
    )
    return [
        (Line(row["file"], row["line"], row["function"] or ""), calls, row["weight"])
        for row in lines.sort("weight", "file", "line", descending=[True, False, False]).iter_rows(named=True)
        if (calls := writing_calls(evidence.timeline.run, row["file"], row["line"]))
    ]


def _logged(evidence: Evidence, trainer: Trainer, gap: PythonGap, alone: bool) -> LoggedGap | None:
    """Return the samples of writing in one code section; None without any, or with too few samples."""
    rows = gap_samples(evidence, trainer, gap, alone)
    sampled = int(rows["weight"].sum())
    if sampled < ENOUGH:
        return None
    writing = _on_writing_lines(evidence, rows)
    if not writing:
        return None
    return LoggedGap(
        gap=gap,
        where=writing[0][0],
        calls=tuple(dict.fromkeys(call for _, calls, _ in writing for call in calls)),
        logged=sum(weight for _, _, weight in writing),
        sampled=sampled,
        outside=OUTSIDE in rows["source"],
    )
