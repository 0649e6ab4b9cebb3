"""Saving (or loading) files holds the training thread up.

What it finds
    torch.save or torch.load inside the training loop, line by line, during 2 % of the loop or more. Where the lines
    behind a call, in the same loop or function, move, remove, secure or upload files, the program's own code right
    behind it counts, too: renaming a large file over an older one, or fsync, can take longer than writing it.

Why it costs
    Collecting, pickling and writing the state runs on the training thread; nothing else happens meanwhile.

How the saving is worked out
    Measured: the time inside the calls, from the account. At worst nine tenths of it go; at best (written in the
    background, or so rarely that it does not show) all of it, and up to three tenths more, as what stands beside it
    runs faster then: scripts that were mended by hand gained so much.

How to fix
    Save every N steps instead of every M; the advice names the N that costs 1 % of the loop. Copy the state
    to host memory and write it from another thread, or use torch.distributed.checkpoint.async_save. Leave
    the optimizer's state out of files that are only evaluated.

When it is wrong
    When the run is preempted so often that the checkpoints are worth their time.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import or_

import polars as pl

from perfwrap import units
from perfwrap.measures.checkpoints import CheckpointLine
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without_measured
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("checkpoints", "steady_steps")

GOOD_SHARE = 0.01
"""What checkpoints may cost in the advice; Young's and Daly's optima for common failure rates lie near 1
%."""

MOST_CALLS = 3
"""So many of the calls behind it are named."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for lines that save or load inside the loop."""
    lines = evidence.checkpoints(trainer)
    answers = [_finding(evidence, trainer, line) for line in lines]
    found = [finding for finding in answers if finding.share >= QUIET_SHARE]
    if found:
        return found
    return Clear(f"Saving and loading take {units.share(sum(line.share for line in lines))} of the loop.")


def _finding(evidence: Evidence, trainer: Trainer, line: CheckpointLine) -> Finding:
    """Return the finding about one line, however small."""
    where = place(line.where, "one line")
    often = "once" if line.every_steps is None else f"every {units.number(line.every_steps)} steps"
    written = "" if line.bytes is None else f", {units.size(line.bytes)} each"
    gaps, calls = evidence.gaps_with_files(trainer, line.where)
    behind_ns = sum(gap.total_ns for gap in gaps) / max(1, line.count)
    share = line.share + sum(gap.share for gap in gaps)
    words = [
        f"{units.counted(line.count, 'call')} in the steady loop, {often}, "
        f"{units.duration(line.median_ns)} each as a median{written}."
    ]
    if gaps:
        words.append(
            f"Another {units.duration(behind_ns)} each pass right behind it, where {', '.join(calls[:MOST_CALLS])} "
            "stands."
        )
    return Finding(
        title=f"{SHARE} of the training loop is spent in torch.{line.operation} at {where}"
        f"{' and with the files behind it' if gaps else ''}.",
        share=share,
        saving=without_measured(share),
        evidence=tuple(words),
        advice=_advice(
            line, where, line.median_ns + behind_ns, (1.0 - share) * mean_step_ns(evidence, trainer)
        ),
        verdict="checkpoint/validation-bound",
        location=locate(line.where),
        experiment="no-checkpoint",
        claims=reduce(or_, (gap.segments for gap in gaps), _claims(line)),
    )


def _advice(line: CheckpointLine, where: str, call_ns: float, rest_ns: float) -> str:
    """Return what to change."""
    if line.operation == "load":
        return f"Load the file at {where} once, before the loop, and keep what it holds."
    rarer = "Save more rarely"
    if line.every_steps is not None and rest_ns > 0:
        steps = max(math.ceil(call_ns / (GOOD_SHARE * rest_ns)), math.ceil(line.every_steps) + 1)
        rarer = f"Save every {units.number(steps)} steps instead of every {units.number(line.every_steps)}"
    return f"{rarer} at {where}, or copy the state to host memory and write it from a background thread."


def _claims(line: CheckpointLine) -> pl.Expr:
    """Return the segments of the account inside this line's calls."""
    own = (pl.col("part") == "checkpoint") & (pl.col("operation") == line.operation)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)
