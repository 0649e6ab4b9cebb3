"""Saving or loading files blocks the training thread.

What it finds
    torch.save or torch.load inside the training loop, by line, during at least 2 % of the loop. If the lines after a
    call, in the same loop or function, move, delete, sync or upload files, the program's own code right after it also
    counts: renaming a large file over an older one, or fsync, can take longer than writing it.

Why it costs
    Collecting, pickling and writing the state runs on the training thread; training stops meanwhile.

How the gain is estimated
    Measured: the time inside the calls. The lower bound is nine tenths of it; the upper bound (saving in background,
    or rarely) is all of it plus up to six tenths, because nearby code also gets faster: this was measured on scripts
    with the fix.

How to fix
    Save less often; the advice names the interval that costs 1 % of the loop. Copy the state to host memory and write
    it from another thread, or use torch.distributed.checkpoint.async_save. Do not save the optimizer state in files
    that are only used for evaluation.

When it is wrong
    When the run is preempted so often that it needs these checkpoints.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import or_

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import without, without_measured
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.checkpoints import CheckpointLine, find_checkpoints
from perfwrap.measures.loop.gap_calls import find_gaps_with_files
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("checkpoints", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    target_share: float = 0.01
    """Share of the loop that checkpoints cost after the fix; Young's and Daly's optima for common failure rates are
    near 1 %."""
    max_calls: int = 3
    """How many of the calls after it are named."""


LEAST_GROUP = 1.5
"""Calls in a row from which the evidence mentions them."""
CEILING = "no-checkpoint"
"""The experiment in which saving takes no time."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for lines that save or load inside the loop."""
    lines = evidence.get(find_checkpoints, trainer)
    answers = [_finding(evidence, trainer, line, limits) for line in lines]
    found = [finding for finding in answers if finding.share >= limits.min_reported_share]
    if found:
        return found
    return Clear(f"Saving and loading take {units.share(sum(line.share for line in lines))} of the loop.")


def _finding(evidence: Evidence, trainer: Trainer, line: CheckpointLine, limits: Limits) -> Finding:
    """Return the finding about one line, however small."""
    where = place(line.where, "one line")
    at_a_time = "" if line.at_a_time < LEAST_GROUP else f"{units.number(line.at_a_time)} at a time "
    alone = "once" if line.count == 1 else "in a row"
    often = alone if line.every_steps is None else f"{at_a_time}every {units.number(line.every_steps)} steps"
    written = "" if line.bytes is None else f", {units.size(line.bytes)} each"
    gaps, calls = find_gaps_with_files(evidence, trainer, line.where)
    behind_ns = sum(gap.total_ns for gap in gaps) / max(1, line.count)
    share = line.share + sum(gap.share for gap in gaps)
    words = [
        f"{units.counted(line.count, 'call')} in the steady loop, {often}, "
        f"{units.duration(line.median_ns)} each (median){written}."
    ]
    if gaps:
        words.append(
            f"The code right after it takes another {units.duration(behind_ns)} each time; it calls "
            f"{', '.join(calls[: limits.max_calls])}."
        )
    return Finding(
        title=f"{SHARE} of the training loop is spent in torch.{line.operation} at {where}"
        f"{' and in the file operations after it' if gaps else ''}.",
        share=share,
        evidence=tuple(words),
        options=_options(
            line,
            where,
            share,
            line.at_a_time * (line.median_ns + behind_ns),
            (1.0 - share) * mean_step_ns(evidence, trainer),
            limits,
        ),
        verdict="checkpoint/validation-bound",
        location=locate(line.where),
        claims=reduce(or_, (gap.segments for gap in gaps), _claims(line)),
    )


def _options(
    line: CheckpointLine, where: str, share: float, call_ns: float, rest_ns: float, limits: Limits
) -> tuple[Option, ...]:
    """Return the ways to lose less time; ``rest_ns`` is a step without saving."""
    basis = f"{units.duration(call_ns)} each time"
    if line.operation == "load":
        edit = f"Load the file at {where} once, before the loop, and keep its contents."
        return (Option(edit, without_measured(share), basis, CEILING),)
    rarer = "Save less often"
    saved = share
    if line.every_steps is not None and rest_ns > 0:
        steps = max(math.ceil(call_ns / (limits.target_share * rest_ns)), math.ceil(line.every_steps) + 1)
        rarer = f"Save every {units.number(steps)} steps instead of every {units.number(line.every_steps)}"
        saved = share * (1.0 - line.every_steps / steps)
    return (
        Option(f"{rarer} at {where}.", without_measured(saved), basis, CEILING),
        Option(
            f"Copy the state to host memory at {where} and write it from a background thread.",
            without(share),
            basis,
            CEILING,
        ),
    )


def _claims(line: CheckpointLine) -> pl.Expr:
    """Select the segments of the account inside this line's calls."""
    own = (pl.col("part") == "checkpoint") & (pl.col("operation") == line.operation)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)
