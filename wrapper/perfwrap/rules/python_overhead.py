"""The training thread is in the program's own code between the phases of the step.

What it finds
    Stretches of the loop in which no batch is waited for and no module, backward pass or optimizer runs,
    named by the line of the recorded event before and the line of the next one, that take 5 % of the
    training loop or more.

Why it costs
    Python runs one line after the other on one core. On a GPU nothing new is launched meanwhile.

How the saving is worked out
    The time is measured, what it is spent on is not: besides Python itself it may hold tensor operations
    that are called outside of any module, a loss function for instance. At best all of it goes, at worst
    half of it.

How to fix
    Replace loops over samples by tensor operations. Do bookkeeping every N steps instead of each step. When
    the stretch makes the batches, put that code into a Dataset and let DataLoader workers run it beside the
    training.

When it is wrong
    When the stretch holds the loss function or other tensor work of the model. A stretch from the forward to
    the backward pass is therefore reported only from 15 % on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.python_gaps import PythonGap
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Location, place

NEEDS = ("steady_steps",)
VERDICT = "python-bound"

LARGE_SHARE = 0.05
"""Share of the loop from which a stretch is reported: some Python between the phases is natural, and the
healthy workloads hold up to 4 % of it."""

LARGE_LOSS_SHARE = 0.15
"""The same for a stretch from forward to backward, where the loss function runs."""

SCATTERED_SHARE = 0.20
"""Share of the loop from which many short stretches are reported together: none of them stands out, all of
them make the loop what the scale of severity calls critical."""

NAMES = {
    "data": "the batch",
    "data_end": "the end of the epoch",
    "loader_start": "the start of the loader",
    "zero_grad": "zero_grad",
    "optimizer": "the optimizer step",
    "scaler_step": "the scaler's step",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "sync": "reading a value",
    "save": "torch.save",
    "load": "torch.load",
    "gc": "a collection",
}
"""What the recorded events are called in a sentence."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for long stretches of the program's own code, or for very many short ones."""
    gaps = evidence.python_gaps(trainer)
    found = [_finding(gap) for gap in gaps if gap.share >= _least_share(gap)]
    if found:
        return found
    scattered = [gap for gap in gaps if not _holds_loss(gap)]
    share = sum(gap.share for gap in scattered)
    if share >= SCATTERED_SHARE:
        return [_scattered(scattered, share)]
    total = evidence.account(trainer).shares["python"]
    return Clear(
        f"The program's own code between the phases takes {units.share(total)} of the loop, no stretch much."
    )


def _least_share(gap: PythonGap) -> float:
    """Return the share from which a stretch is reported."""
    return LARGE_LOSS_SHARE if _holds_loss(gap) else LARGE_SHARE


def _holds_loss(gap: PythonGap) -> bool:
    """Say whether the loss function is likely to run in the stretch."""
    return gap.after_operation == "forward" and gap.before_operation in ("backward", "zero_grad")


def _finding(gap: PythonGap) -> Finding:
    """Return the finding about one stretch."""
    lines = _lines(gap)
    before, after = (
        NAMES.get(gap.after_operation, gap.after_operation),
        NAMES.get(gap.before_operation, "the next event"),
    )
    return Finding(
        title=f"{SHARE} of the training loop is the program's own code {lines}.",
        share=gap.share,
        saving=(1.0 - gap.share, 1.0 - gap.share / 2),
        evidence=(
            f"{units.duration(gap.per_step_ns)} per step between {before} and {after}, "
            f"{units.counted(gap.count, 'time')} in the steady loop.",
        ),
        advice=_advice(gap, lines),
        location=_location(gap),
        confidence="inferred",
        claims=_claims(gap),
    )


def _scattered(gaps: Sequence[PythonGap], share: float) -> Finding:
    """Return the finding about many short stretches; the gaps stand in order of their time."""
    largest = ", ".join(place(gap.after, "an unknown line") for gap in gaps[:3])
    stretches = units.counted(len(gaps), "short stretch", "short stretches")
    step_ns = sum(gap.per_step_ns for gap in gaps)
    return Finding(
        title=f"{SHARE} of the training loop is the program's own code, in {stretches}.",
        share=share,
        saving=(1.0 - share, 1.0 - share / 2),
        evidence=(f"{units.duration(step_ns)} per step in all; the longest stretches are after {largest}.",),
        advice="Do more per call: read values together instead of one by one, and work on whole batches.",
        location=_location(gaps[0]),
        confidence="inferred",
        claims=reduce(or_, (_claims(gap) for gap in gaps)),
    )


def _lines(gap: PythonGap) -> str:
    """Return where the stretch is, e.g. ``in lines 27 to 35 of train.py``."""
    if gap.after is None:
        return "whose line is not known"
    name = place(gap.after, "").rpartition(":")[0]
    if gap.until_line is None:
        return f"after line {gap.after.line} of {name}"
    if gap.until_line < gap.after.line:
        return f"after line {gap.after.line} of {name}, up to line {gap.until_line} of the next round"
    if gap.until_line == gap.after.line:
        return f"around line {gap.after.line} of {name}"
    return f"in lines {gap.after.line} to {gap.until_line} of {name}"


def _location(gap: PythonGap) -> Location | None:
    """Return where the stretch starts and ends."""
    if gap.after is None:
        return None
    return Location(gap.after.file, gap.after.line, gap.after.function, gap.until_line)


def _advice(gap: PythonGap, lines: str) -> str:
    """Return what to change."""
    if gap.after_operation in ("optimizer", "scaler_step", "zero_grad") and gap.before_operation == "forward":
        return (
            f"Look at the code {lines}: if it makes the next batch, let DataLoader workers make it beside "
            "the training; if it keeps books, do that every N steps."
        )
    if _holds_loss(gap):
        return (
            f"Look at the code {lines}: the loss function runs there. Write it with tensor operations of "
            "the whole batch."
        )
    return (
        f"Look at the code {lines}: replace loops over samples by tensor operations, and keep books every N "
        "steps."
    )


def _claims(gap: PythonGap) -> pl.Expr:
    """Return the segments of the account in this stretch."""
    own = pl.col("part") == "python"
    if gap.after is None:
        own &= pl.col("file").is_null()
    else:
        own &= (pl.col("file") == gap.after.file) & (pl.col("line") == gap.after.line)
    own &= pl.col("after_operation").fill_null("") == gap.after_operation
    own &= pl.col("before_operation").fill_null("") == gap.before_operation
    return own & pl.col("until_line").eq_missing(pl.lit(gap.until_line, pl.Int32))
