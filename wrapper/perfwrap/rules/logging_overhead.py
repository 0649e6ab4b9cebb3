"""The training thread writes logs, progress bars or tables instead of training.

What it finds
    Lines between the phases of the step that print, write, flush, log or draw a progress bar, in which samples of
    stacks found the training thread during 2 % of the loop or more.

Why it costs
    Formatting and writing run on the thread that feeds the model. A flush to a terminal, a network disk or with fsync
    waits for the other side; a file that is written anew each time grows with the run.

How the saving is worked out
    The stretch between two recorded events is measured; how much of it is writing is inferred from the samples in it,
    and that a line writes from its text. At best nearly all of it goes (every 50 steps), at worst half.

How to fix
    Log every N steps, buffer lines and flush rarely, append instead of rewriting, hand the writing to a thread.

When it is wrong
    When a line that writes also works something out (print(evaluate(...))): the samples cannot tell these apart. The
    recorder's own sampler sees lines that give up Python's lock, as writing does, more often than others: py-spy does
    not.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.logged_gaps import LoggedGap
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps", "stacks", "phases")

MOSTLY = 0.5
"""Share of a stretch's samples that must be on lines that write: else the stretch is something else."""

LEAST_GONE, MOST_GONE = 0.5, 0.98
"""Part of the writing that goes when it is done every other step, and every 50 steps."""

MOST_CALLS = 4
"""Calls that are named."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for stretches that are mostly writing."""
    gaps = [gap for gap in evidence.logged_gaps(trainer) if gap.logged >= MOSTLY * gap.sampled]
    share = sum(gap.share for gap in gaps)
    if share < QUIET_SHARE:
        return Clear(f"Samples found the training thread writing logs for {units.share(share)} of the loop.")
    first, step_ns = gaps[0], mean_step_ns(evidence, trainer)
    calls = tuple(dict.fromkeys(call for gap in gaps for call in gap.calls))
    return [
        Finding(
            title=f"{SHARE} of the training loop goes into writing logs, most of it at {place(first.where, '')}.",
            share=share,
            saving=saving(step_ns, LEAST_GONE * share * step_ns, MOST_GONE * share * step_ns),
            evidence=tuple(_words(gap) for gap in gaps),
            advice=f"Call {', '.join(calls[:MOST_CALLS])} every 50 steps or so, or collect and write once per epoch.",
            verdict="python-bound",
            location=locate(first.where),
            confidence="inferred",
            claims=reduce(or_, (gap.gap.segments for gap in gaps)),
        )
    ]


def _words(gap: LoggedGap) -> str:
    """Return what was measured and sampled in one stretch."""
    who = "py-spy" if gap.outside else "the recorder"
    calls = ", ".join(gap.calls[:MOST_CALLS])
    return (
        f"{units.duration(gap.gap.per_step_ns)} per step of the program's own code; {units.count(gap.logged)} of "
        f"{units.count(gap.sampled)} samples of it by {who} were on lines that call {calls}."
    )
