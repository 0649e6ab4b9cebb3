"""The user's lines in call stack samples: while batches are made, and between the phases.

Where a sample belongs follows from the stack itself, not from its time: the time of a sample is known to some
milliseconds at best, and phases may be shorter. The time shows whether it was in the steady loop and, if the sections
of the program's own code are long, in which: lines of a function that has returned say nothing about what comes next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.batch_making import workers_of
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import (
    FRAME,
    LibraryTime,
    common_caller,
    common_lines,
    is_program,
    library_time,
)
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps, pieces_of
from perfwrap.measures.loop.section_frames import find_bounds, is_in, is_same_function
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

OUTSIDE = "py-spy"
"""The source that sees a process from outside, at any moment; the recorder's own sampler needs the GIL, which a thread
releases at some places more often than at others."""
MAKING = ("fetch", "getitem", "collate")
WAITING = (*MAKING, "data", "data_end", "loader_start")
ALONE_SHARE = 0.75
"""Share of the program's own code from which a section gets the samples of functions that it may have called, if only
innermost lines are known."""
WITH_LIBRARIES = 2
"""Functions whose libraries are looked for."""
ENOUGH = 10
"""Minimum number of samples to quote: with fewer, shares mean nothing."""
LONG_NS = 10_000_000
"""Length of a piece of a section from which the time of a sample shows whether it was there."""
MIN_LONG_SHARE = 0.8
"""Share of a section's time in long pieces that were recorded in detail, from which the times of the samples decide."""
MOST = 0.5
"""Share of samples from which they decide what a section is."""
ITEM_METHODS = frozenset(("__getitem__", "__getitems__", "__iter__", "__next__"))
"""Methods of datasets that make samples."""
PASSED_SHARE = 0.8
"""Share of a section's samples that must pass a function for it to be where to look."""
TRAINS = ("backward", "optimizer")
"""Operations that only a training step runs: what calls nearly all of them calls the step."""
OF_A_STEP = ("data", "forward", "backward", "gradient", "optimizer", "zero_grad")
MIN_WAITS_SHARE = 0.8
"""Share of the waits of all loaders without workers that one must have to own the samples of making batches."""


class HotFunction(Struct, frozen=True):
    """A function of the user with its number of samples, and its line with most of them."""

    line: Line
    count: int
    on_line: int
    """Part of ``count``: samples on that line."""
    library: LibraryTime | None = None
    """The libraries that the line calls, of these samples."""
    caller: Line | None = None
    """The line of the program that calls the function, if nearly all samples have the same."""


class Sampled(Struct, frozen=True):
    """Samples of one kind: their number, and the user's functions in them, most first."""

    count: int
    functions: tuple[HotFunction, ...]
    source: str
    """Which sampler: ``py-spy`` or ``recorder``."""
    common: tuple[HotFunction, ...] = ()
    """The lines inside modules that at least half of the samples pass, outermost first; only for samples of modules."""
    passed: HotFunction | None = None
    """The innermost function that nearly all samples pass, below the training loop; of sections and batches."""


def sampled_making(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Sampled | None:
    """Return the samples while a loader's batches were made: in its workers, or in the training thread.

    None with too few samples, or if the loader of the batches is unknown.
    """
    timeline = evidence.timeline
    rows = _inside(timeline, evidence.get(find_account, trainer))
    if loader.workers:
        processes = workers_of(timeline, trainer, loader.name)
        threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent").is_in(processes))
        rows = rows.filter(pl.col("track").is_in(threads["id"].to_list()), pl.col("operation").is_in(MAKING))
    else:
        waits = sum(other.wait_ns for other in evidence.get(find_loaders, trainer) if not other.workers)
        if loader.wait_ns < MIN_WAITS_SHARE * waits:
            return None
        rows = rows.filter(pl.col("track") == trainer.thread, pl.col("operation").is_in(WAITING))
    found = sampled(rows, _waiting_lines(timeline, trainer))
    passed = _passed(rows, evidence.get(functions_of_loop, trainer))
    if passed is not None and passed.line.function.rpartition(".")[2] in ITEM_METHODS:
        passed = None  # All of making a batch is below these.
    return found and replace(found, passed=passed)


def sampled_gap(evidence: Evidence, trainer: Trainer, gap: PythonGap, alone: bool) -> Sampled | None:
    """Return the samples in one section of the program's own code; None with too few."""
    rows = gap_samples(evidence, trainer, gap, alone)
    found = sampled(rows)
    return found and replace(found, passed=_passed(rows, evidence.get(functions_of_loop, trainer)))


def functions_of_loop(evidence: Evidence, trainer: Trainer) -> frozenset[tuple[str, str]]:
    """Return the functions, with their files, that call what makes up a training step, and those that call these."""
    spans = evidence.timeline.spans.filter(
        pl.col("track") == trainer.thread, pl.col("operation").is_in(OF_A_STEP), pl.col("file").is_not_null()
    )
    trains = evidence.timeline.stacks.filter(
        pl.col("track") == trainer.thread,
        pl.col("operation").is_in(TRAINS),
        pl.col("stack").is_not_null(),
    )
    callers: Counter[tuple[str, str]] = Counter()
    for stack, weight in trains.group_by("stack").agg(pl.col("weight").sum()).iter_rows():
        frames = (frame for frame in FRAME.finditer(stack) if is_program(frame["file"]))
        for place in {(frame["file"], frame["function"]) for frame in frames}:
            callers[place] += weight
    least = PASSED_SHARE * int(trains["weight"].sum())
    return frozenset(spans.select("file", pl.col("function").fill_null("")).unique().iter_rows()) | {
        place for place, weight in callers.items() if weight >= least
    }


def _passed(rows: pl.DataFrame, of_loop: Container[tuple[str, str]]) -> HotFunction | None:
    """Return the innermost function that nearly all samples pass; None if that is one of the training loop."""
    count: Counter[tuple[str, str]] = Counter()
    depths: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    known = rows.filter(pl.col("stack").is_not_null())
    for stack, weight in known.group_by("stack").agg(pl.col("weight").sum()).sort("stack").iter_rows():
        frames = (each for each in FRAME.finditer(stack) if is_program(each["file"]))
        place = {(each["file"], each["function"]): (at, int(each["line"])) for at, each in enumerate(frames)}
        for function, (depth, line) in place.items():
            count[function] += weight
            depths[function] += depth * weight
            lines[function][line] += weight
    least = PASSED_SHARE * int(rows["weight"].sum())
    common = [function for function, passing in count.items() if passing >= least]
    innermost = max(common, key=lambda each: depths[each] / count[each], default=None)
    if innermost is None or innermost in of_loop:
        return None
    ((line, on_line),) = lines[innermost].most_common(1)
    return HotFunction(Line(innermost[0], line, innermost[1]), count[innermost], on_line)


def sampled_computing(evidence: Evidence, trainer: Trainer, losses: tuple[PythonGap, ...]) -> Sampled | None:
    """Return the samples inside outermost module calls, in hooks of backward passes, and in the sections of losses.

    ``count`` is that of all samples of the training thread in the steady loop.
    """
    whole = sum(gap.share for gap in evidence.get(find_python_gaps, trainer))
    alone = sum(gap.share for gap in losses) >= ALONE_SHARE * whole
    account = evidence.get(find_account, trainer)
    rows = _inside(evidence.timeline, account).filter(pl.col("track") == trainer.thread)
    pieces = [gap_samples(evidence, trainer, gap, alone) for gap in losses]
    forward = rows.filter(pl.col("operation") == "forward")
    computing = pl.concat([forward, _in_hooks(evidence.timeline, trainer, rows), *pieces])
    computing = computing.unique(maintain_order=True)
    if OUTSIDE in rows["source"]:
        rows, computing = (found.filter(pl.col("source") == OUTSIDE) for found in (rows, computing))
    found = sampled(computing)
    stacks = list(computing.group_by("stack", maintain_order=True).agg(pl.col("weight").sum()).iter_rows())
    common = tuple(
        HotFunction(Line(file, line, function), count, count, library_time(stacks, file, line))
        for file, function, line, count in common_lines(stacks)
    )
    return found and replace(found, count=int(rows["weight"].sum()), common=common)


def _in_hooks(timeline: Timeline, trainer: Trainer, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the samples in functions of the program that a backward pass calls: hooks and custom gradients."""
    spans = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "backward")
    callers = spans.select("file", "function").unique()
    backward = rows.filter(pl.col("operation") == "backward", pl.col("file").is_not_null())
    return backward.join(callers, on=["file", "function"], how="anti")


def sampled_outside(evidence: Evidence, trainer: Trainer) -> Sampled | None:
    """Return the samples of the program's own code outside of every recorded call; None with too few."""
    rows = _inside(evidence.timeline, evidence.get(find_account, trainer))
    return sampled(rows.filter(pl.col("track") == trainer.thread, pl.col("operation").is_null()))


def sampled_optimizer(evidence: Evidence, trainer: Trainer) -> Sampled | None:
    """Return the samples of optimizer steps; None with too few."""
    rows = _inside(evidence.timeline, evidence.get(find_account, trainer))
    return sampled(rows.filter(pl.col("track") == trainer.thread, pl.col("operation") == "optimizer"))


def sampled_function(evidence: Evidence, trainer: Trainer, file: str, function: str) -> Sampled | None:
    """Return the samples between recorded calls that pass a function of the program; None with too few."""
    rows, stacks = evidence.get(_between_calls, trainer)
    passing = [
        stack
        for stack in stacks
        if stack
        and any(
            each["file"] == file and is_same_function(each["function"], function)
            for each in FRAME.finditer(stack)
        )
    ]
    rows = rows.filter(pl.col("stack").is_in(passing))
    found = sampled(rows)
    return found and replace(found, passed=_passed(rows, evidence.get(functions_of_loop, trainer)))


def sampled_validation(evidence: Evidence, trainer: Trainer) -> Sampled | None:
    """Return the samples during validation phases, by their time; None with too few, or if the phases are short."""
    phases = evidence.get(find_steps, trainer).phases
    if not phases.start.size or np.median(phases.end - phases.start) < LONG_NS:
        return None
    rows = _inside(evidence.timeline, evidence.get(find_account, trainer)).filter(
        pl.col("track") == trainer.thread, pl.col("source") == OUTSIDE
    )
    return sampled(rows.filter(pl.Series(phases.contain(rows["time"].to_numpy()), dtype=pl.Boolean)))


def gap_samples(evidence: Evidence, trainer: Trainer, gap: PythonGap, alone: bool) -> pl.DataFrame:
    """Return the samples in one section of the program's own code; with two samplers only those of py-spy.

    A sample with only its innermost line, in another function than the section, counts if the section is ``alone``:
    there is no other place where it could belong.
    """
    rows, stacks = evidence.get(_between_calls, trainer)
    timed = _in_long_pieces(rows, evidence.get(find_account, trainer), gap)
    if timed["weight"].sum() >= ENOUGH:
        return timed
    # From outside whole stacks are visible: those of one frame are complete.
    alone &= OUTSIDE not in rows["source"]
    bounds = find_bounds(evidence, trainer, gap)
    inside = [stack for stack in stacks if is_in(stack, gap, bounds, alone)]
    found = rows.filter(pl.col("stack").is_in(inside))
    return found.filter(pl.col("source") == OUTSIDE) if OUTSIDE in found["source"] else found


def has_recorded_calls(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> bool:
    """Return whether most samples during a long section are in calls that the recorder knows, but did not record.

    In a pause of the detailed recording, an evaluation without a loader leaves no events of its own. Then such calls
    have more of all samples than of the account: in a pause it is not known when which part of a step ran.
    """
    account = evidence.get(find_account, trainer)
    rows = _inside(evidence.timeline, account).filter(pl.col("track") == trainer.thread)
    timed = _in_long_pieces(rows, account, gap)
    if timed["weight"].sum() < ENOUGH or _known_share(timed) <= MOST:
        return False
    outside = rows.filter(pl.col("source") == OUTSIDE)
    unaccounted = _known_share(outside) - (1.0 - account.shares["python"])
    return unaccounted > MOST * gap.share / 2


def _known_share(rows: pl.DataFrame) -> float:
    """Return the share of samples that are in calls that the recorder knows."""
    known = rows.filter(pl.col("operation").is_not_null())
    return int(known["weight"].sum()) / max(1, int(rows["weight"].sum()))


def _in_long_pieces(rows: pl.DataFrame, account: Account, gap: PythonGap) -> pl.DataFrame:
    """Return py-spy's samples during a section; none if its pieces are too short to tell."""
    if gap.total_ns < LONG_NS * gap.count:
        return rows.clear()
    length = pl.col("end") - pl.col("start")
    pieces = pieces_of(account, gap)
    long_ns = pieces.filter(length >= LONG_NS).select(length.sum()).item() or 0
    if long_ns < MIN_LONG_SHARE * gap.total_ns:
        return rows.clear()
    outside = rows.filter(pl.col("source") == OUTSIDE).sort("time")
    joined = outside.join_asof(pieces, left_on="time", right_on="start", strategy="backward")
    return joined.filter(pl.col("time") < pl.col("end")).select(rows.columns)


def _between_calls(evidence: Evidence, trainer: Trainer) -> tuple[pl.DataFrame, list[str]]:
    """Return the samples of the training thread between recorded calls, and their distinct stacks."""
    rows = _inside(evidence.timeline, evidence.get(find_account, trainer)).filter(
        pl.col("track") == trainer.thread, pl.col("operation").is_null(), pl.col("file").is_not_null()
    )
    return rows, rows["stack"].unique().to_list()


def sampled(rows: pl.DataFrame, besides: pl.DataFrame | None = None) -> Sampled | None:
    """Return the functions of some samples, without those on the lines ``besides``; None with too few samples."""
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
    return Sampled(count, _with_libraries(found, known), str(rows["source"][0]))


def _with_libraries(functions: tuple[HotFunction, ...], rows: pl.DataFrame) -> tuple[HotFunction, ...]:
    """Return the functions, the first ones with the libraries that their hottest lines call."""
    found = []
    for hot in functions[:WITH_LIBRARIES]:
        here = rows.filter(pl.col("file") == hot.line.file, pl.col("line") == hot.line.line)
        stacks = list(here.group_by("stack", maintain_order=True).agg(pl.col("weight").sum()).iter_rows())
        library = library_time(stacks, hot.line.file, hot.line.line)
        whole = rows.filter(
            pl.col("file") == hot.line.file, pl.col("function").fill_null("") == hot.line.function
        )
        caller = common_caller(
            list(whole.group_by("stack").agg(pl.col("weight").sum()).iter_rows()), hot.line.file
        )
        found.append(replace(hot, library=library, caller=caller and Line(caller[0], caller[2], caller[1])))
    return (*found, *functions[WITH_LIBRARIES:])


def _inside(timeline: Timeline, account: Account) -> pl.DataFrame:
    """Return the samples in the steady loop."""
    return timeline.stacks.filter(pl.col("time").is_between(account.start, account.end, closed="left"))


def _waiting_lines(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the lines that wait for batches: they call torch's code, and none of the user's lines makes a batch."""
    waits = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "data")
    return waits.select("file", "line").unique().drop_nulls()
