"""Python's garbage collector stops the training thread.

What it finds
    Collections inside the training loop that take 2 % of it or more.

Why it costs
    A full collection walks through every container object that is alive, on the thread that triggered it.
    With millions of Python objects in memory that takes as long as many steps.

How the saving is worked out
    Measured: the pauses, from the account. At worst nine tenths of it go, when the loop itself makes objects that must
    be collected; at best (the living objects frozen, collections at chosen moments) all of it, and up to three tenths
    more, as what stands beside it runs faster then: scripts that were mended by hand gained so much.

How to fix
    Call gc.collect() and then gc.freeze() once after the set-up: what is alive then is never walked through
    again. Take explicit gc.collect() calls out of the step. Keep large histories in arrays instead of Python
    objects.

When it is wrong
    When the loop makes reference cycles that hold GPU memory: collecting rarely then raises the memory peak.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.garbage import Garbage
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import busiest_line
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without_measured
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("gc", "steady_steps")

FULL = 2
"""The generation that walks through everything."""

EACH_STEP = 0.5
"""Steps with a long pause, over all steps, from which collecting looks like a habit of the loop."""

MOSTLY = 0.5
"""Part of the pauses that must be of collections that one line asked for, from which it is the reason."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the collector's pauses."""
    garbage = evidence.garbage(trainer)
    if garbage.share < QUIET_SHARE:
        return Clear(
            f"{units.counted(garbage.count, 'collection')} take {units.share(garbage.share)} of the loop."
        )
    line = _asking_line(evidence, trainer, garbage)
    often = garbage.steps_hit >= EACH_STEP * max(1, evidence.steps(trainer).steady)
    return [
        Finding(
            title=f"{SHARE} of the training loop is garbage collection, up to "
            f"{units.duration(garbage.longest_ns)} at once.",
            share=garbage.share,
            saving=without_measured(garbage.share),
            evidence=_words(garbage, line),
            advice=_advice(line, often),
            verdict="python-bound",
            location=locate(line),
            experiment="gc-freeze",
            claims=pl.col("part") == "gc",
        )
    ]


def _asking_line(evidence: Evidence, trainer: Trainer, garbage: Garbage) -> Line | None:
    """Return the line that asked for the collections of most of the time; Python's own bear no line."""
    line = busiest_line(evidence.account(trainer), "gc")
    if line is None:
        return None
    on_line = (pl.col("part") == "gc") & (pl.col("file") == line.file) & (pl.col("line") == line.line)
    return line if evidence.account(trainer).share_of(on_line) >= MOSTLY * garbage.share else None


def _words(garbage: Garbage, line: Line | None) -> tuple[str, ...]:
    """Return what was seen."""
    full = units.duration(garbage.by_generation.get(FULL, 0))
    asked = f" Most of that the program asks for at {place(line, '')}." if line else ""
    return (
        f"{units.counted(garbage.count, 'collection')} took {units.duration(garbage.pause_ns)}, {full} of "
        f"it full ones; {units.counted(garbage.steps_hit, 'step')} had a pause of a millisecond or more.{asked}",
    )


def _advice(line: Line | None, often: bool) -> str:
    """Return what to change."""
    freeze = "Call gc.collect() and gc.freeze() once, between the set-up and the loop"
    if line is not None:
        rarer = "call it every few hundred steps" if often else "call it more rarely"
        return f"Take the collection at {place(line, '')} out of the step, or {rarer}. {freeze}."
    return f"{freeze}, and keep what the loop remembers in arrays instead of Python objects."
