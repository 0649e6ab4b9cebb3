"""Python's garbage collector stops the training thread.

What it finds
    Garbage collections inside the training loop that take at least 2 % of it.

Why it costs
    A full collection visits every live container object, on the thread that triggered it. With millions of Python
    objects in memory this takes as long as many steps.

How the gain is estimated
    Measured: the pauses. The lower bound is nine tenths of them, if the loop itself creates objects that must be
    collected; the upper bound (live objects frozen, collections at chosen moments) is all of it plus up to three
    tenths, because nearby code also gets faster: this was measured on scripts with the fix.

How to fix
    If py-spy's samples show which line makes the objects, make fewer there: a deep copy of what does not change, for
    example. Call gc.collect() and then gc.freeze() once after the setup: the objects alive then are never visited
    again. Remove explicit gc.collect() calls from the step. Keep large histories in arrays instead of Python objects.

When it is wrong
    When the loop creates reference cycles that hold GPU memory: rare collections then raise peak memory. When the
    program profiles itself: collections during calls of its torch.profiler belong to program_profiler, and if all of
    the few others follow such calls, the cause is left open.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import busiest_line
from perfwrap.measures.account.what_if import NOTHING, without, without_measured
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.garbage import Garbage, find_allocating_line, find_garbage
from perfwrap.measures.loop.profiler_calls import find_profiler_calls
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("gc", "steady_steps")


FULL = 2
"""The generation of a full collection."""
PROFILED = (
    "Repeat the run without the program's torch.profiler first: its objects may cause these collections, because the "
    "loop had no full collection before the profiler's first call."
)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    frequent_share: float = 0.5
    """Share of the steps with a long pause from which collections are frequent."""
    main_line_share: float = 0.5
    """Share of the pauses that one line must have requested to be the cause."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the collector's pauses."""
    garbage = evidence.get(find_garbage, trainer)
    if garbage.share < limits.min_reported_share:
        return Clear(
            f"{units.counted(garbage.count, 'collection')} take {units.share(garbage.share)} of the loop."
        )
    line = _asking_line(evidence, trainer, garbage, limits)
    making = None if line else evidence.get(find_allocating_line, trainer)
    doubtful = evidence.get(find_profiler_calls, trainer).may_cause_collections
    often = garbage.steps_hit >= limits.frequent_share * max(1, evidence.get(find_steps, trainer).steady)
    return [
        Finding(
            title=f"{SHARE} of the training loop is garbage collection, with pauses of up to "
            f"{units.duration(garbage.longest_ns)}.",
            share=garbage.share,
            evidence=_words(garbage, line, making),
            options=_options(evidence, trainer, garbage.share, line, making, often, doubtful),
            verdict=None if doubtful else "python-bound",
            location=locate(line or making),
            confidence="inferred" if doubtful else "measured",
            max_severity="minor" if doubtful else "critical",
            claims=pl.col("part") == "gc",
        )
    ]


def _asking_line(evidence: Evidence, trainer: Trainer, garbage: Garbage, limits: Limits) -> Line | None:
    """Return the line that requested most of the collection time; automatic collections have no line."""
    line = busiest_line(evidence.get(find_account, trainer), "gc")
    if line is None:
        return None
    return (
        line
        if evidence.get(find_account, trainer).share_of(_on_line(line))
        >= limits.main_line_share * garbage.share
        else None
    )


def _words(garbage: Garbage, line: Line | None, making: Line | None) -> tuple[str, ...]:
    """Return the measured figures."""
    full = units.duration(garbage.by_generation.get(FULL, 0))
    asked = f" The program requests most of that at {place(line, '')}." if line else ""
    return (
        f"{units.counted(garbage.count, 'collection')} took {units.duration(garbage.pause_ns)}, {full} of "
        f"it full collections; {units.counted(garbage.steps_hit, 'step')} had a pause of 1 ms or more.{asked}",
        *(
            (
                f"Most long pauses begin while {place(making, '')} runs, which makes the objects (sampled by py-spy).",
            )
            if making
            else ()
        ),
    )


def _options(
    evidence: Evidence,
    trainer: Trainer,
    share: float,
    line: Line | None,
    making: Line | None,
    often: bool,
    doubtful: bool,
) -> tuple[Option, ...]:
    """Return the ways to collect less."""
    if doubtful:
        return (Option(PROFILED, without_measured(share)),)
    freeze = Option(
        "Call gc.collect() and gc.freeze() once, between the setup and the loop.",
        without_measured(share) if line is None else without(share, NOTHING),
        f"{units.share(share)} of the loop",
        "gc-freeze",
        "" if line else "Keep long-lived data of the loop in arrays instead of Python objects.",
    )
    if line is None and making is not None:
        fewer = Option(
            f"Make fewer objects at {place(making, '')}: copy or build only what changes, and keep the rest.",
            without_measured(share),
            f"{units.share(share)} of the loop",
        )
        return (fewer, freeze)
    if line is None:
        return (freeze,)
    requested = evidence.get(find_account, trainer).share_of(_on_line(line))
    rarer = "call it every few hundred steps" if often else "call it less often"
    remove = Option(
        f"Remove the collection at {place(line, '')} from the step, or {rarer}.",
        without_measured(requested),
        f"{units.share(requested)} of the loop",
    )
    return (remove, freeze)


def _on_line(line: Line) -> pl.Expr:
    """Select the collections that a line requested."""
    return (pl.col("part") == "gc") & (pl.col("file") == line.file) & (pl.col("line") == line.line)
