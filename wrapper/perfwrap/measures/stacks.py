"""Which of the user's lines the samples of stacks were in: while batches were made, and between the phases.

Where a stack belongs is told by the stack itself, not by its time: a sample's moment is known to some milliseconds
or worse, and phases may be shorter. Time only says whether it was in the steady loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.batch_making import workers_of
from perfwrap.measures.lines import Line
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.python_gaps import PythonGap
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

OUTSIDE = "py-spy"
"""The source that sees a process from outside, at any moment; the recorder's own sampler needs Python's lock, which
a thread gives up at some places more often than at others."""
MAKING = ("fetch", "getitem", "collate")
WAITING = (*MAKING, "data", "data_end", "loader_start")
ENOUGH = 10
"""Samples from which they are quoted: of fewer, shares mean nothing."""
MOST_OF_IT = 0.8
"""Share of the waits of all loaders without workers that one must have for samples of making batches to be its own."""
FRAME = re.compile(r"(?:^|;)(?P<function>[^;]*?) \((?P<file>[^;]*):(?P<line>\d+)\)(?=;|$)")


@dataclass(frozen=True)
class HotFunction:
    """A function of the user's with samples in it: how many, and its line that has most of them."""

    line: Line
    count: int
    on_line: int
    """Of ``count``: those on that very line."""


@dataclass(frozen=True)
class Sampled:
    """Samples of one kind: all of them, and the user's functions that they were in, most first."""

    count: int
    functions: tuple[HotFunction, ...]
    source: str
    """Who sampled: ``py-spy`` or ``recorder``."""


def sampled_making(
    timeline: Timeline, trainer: Trainer, account: Account, loaders: tuple[LoaderUse, ...], loader: LoaderUse
) -> Sampled | None:
    """Return what was sampled while a loader's batches were made: in its workers, or in the training thread.

    None where too little was sampled, or where it cannot be told whose batches were made.
    """
    rows = _inside(timeline, account)
    if loader.workers:
        processes = workers_of(timeline, trainer, loader.name)
        threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent").is_in(processes))
        rows = rows.filter(pl.col("track").is_in(threads["id"].to_list()), pl.col("operation").is_in(MAKING))
    else:
        waits = sum(other.wait_ns for other in loaders if not other.workers)
        if loader.wait_ns < MOST_OF_IT * waits:
            return None
        rows = rows.filter(pl.col("track") == trainer.thread, pl.col("operation").is_in(WAITING))
    return sampled(rows, _waiting_lines(timeline, trainer))


def sampled_gap(
    timeline: Timeline, trainer: Trainer, account: Account, gap: PythonGap, alone: bool
) -> Sampled | None:
    """Return what was sampled in one stretch of the program's own code; None where too little was."""
    return sampled(gap_samples(timeline, trainer, account, gap, alone))


def sampled_computing(
    timeline: Timeline, trainer: Trainer, account: Account, losses: tuple[PythonGap, ...], alone: bool
) -> Sampled | None:
    """Return what was sampled inside of outermost module calls, and in the stretches where losses are worked out.

    ``count`` is that of all samples of the training thread in the steady loop, whatever it did. ``alone`` says that
    there is hardly any other stretch of the program's own code than those of the losses.
    """
    rows = _inside(timeline, account).filter(pl.col("track") == trainer.thread)
    pieces = [gap_samples(timeline, trainer, account, gap, alone) for gap in losses]
    computing = pl.concat([rows.filter(pl.col("operation") == "forward"), *pieces])
    computing = computing.unique(maintain_order=True)
    if OUTSIDE in rows["source"]:
        rows, computing = (found.filter(pl.col("source") == OUTSIDE) for found in (rows, computing))
    found = sampled(computing)
    return found and replace(found, count=int(rows["weight"].sum()))


def gap_samples(
    timeline: Timeline, trainer: Trainer, account: Account, gap: PythonGap, alone: bool
) -> pl.DataFrame:
    """Return the samples in one stretch of the program's own code; of two samplers only py-spy's.

    A sample that only tells its innermost line, in another function than the stretch's, counts when the stretch
    is ``alone``: then there is nowhere else that it could belong to.
    """
    rows = _inside(timeline, account).filter(
        pl.col("track") == trainer.thread, pl.col("operation").is_null(), pl.col("file").is_not_null()
    )
    # From outside whole stacks are seen: those of one frame stand for themselves.
    alone &= OUTSIDE not in rows["source"]
    inside = [stack for stack in rows["stack"].unique().to_list() if _is_in(stack, gap, alone)]
    found = rows.filter(pl.col("stack").is_in(inside))
    return found.filter(pl.col("source") == OUTSIDE) if OUTSIDE in found["source"] else found


def sampled(rows: pl.DataFrame, besides: pl.DataFrame | None = None) -> Sampled | None:
    """Return the functions of some samples, without those on the lines ``besides``; None for too few samples."""
    if OUTSIDE in rows["source"]:
        rows = rows.filter(pl.col("source") == OUTSIDE)
    count = int(rows["weight"].sum())
    if count < ENOUGH:
        return None
    known = rows.drop_nulls(["file", "line"])
    if besides is not None:
        known = known.join(besides, on=["file", "line"], how="anti")
    lines = known.group_by("file", "function", "line").agg(pl.col("weight").sum())
    functions = (
        lines.sort("weight", "line", descending=[True, False])
        .group_by("file", "function", maintain_order=True)
        .agg(pl.col("line").first(), pl.col("weight").first().alias("on_line"), pl.col("weight").sum())
        .sort("weight", "file", "function", descending=[True, False, False], nulls_last=True)
    )
    found = tuple(
        HotFunction(Line(row["file"], row["line"], row["function"] or ""), row["weight"], row["on_line"])
        for row in functions.iter_rows(named=True)
    )
    return Sampled(count, found, str(rows["source"][0]))


def _inside(timeline: Timeline, account: Account) -> pl.DataFrame:
    """Return the samples of the steady loop."""
    return timeline.stacks.filter(pl.col("time").is_between(account.start, account.end, closed="left"))


def _waiting_lines(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the lines that wait for batches: what they call is torch's own, which no line of the user's makes."""
    waits = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "data")
    return waits.select("file", "line").unique().drop_nulls()


def _is_in(stack: str, gap: PythonGap, alone: bool) -> bool:
    """Say whether a stack stands in a stretch: whether it passes through the stretch's lines."""
    if gap.after is None:
        return alone
    frames = [(found["function"], found["file"], int(found["line"])) for found in FRAME.finditer(stack)]
    here = [(name, line) for name, file, line in frames if file == gap.after.file]
    own = [line for name, line in here if _same(name, gap.after.function)]
    if not own and len(frames) == 1:
        return alone
    # The event before the stretch may be in a function that has returned since: then its callers' lines tell.
    lines = own or [line for _, line in here]
    return any(_between(line, gap.after.line, gap.until_line) for line in lines)


def _between(line: int, after: int, until: int | None) -> bool:
    """Say whether a line lies in a stretch, which may go round a loop."""
    if until is None:
        return line >= after
    return after <= line <= until if after <= until else line >= after or line <= until


def _same(name: str, other: str) -> bool:
    """Say whether two names may be of one function: some Pythons tell its class, others do not."""
    return name.rpartition(".")[2] == other.rpartition(".")[2]
