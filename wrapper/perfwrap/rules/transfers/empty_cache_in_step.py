"""The loop calls torch.cuda.empty_cache() again and again.

What it finds
    Calls of torch.cuda.empty_cache() in at least one of ten steps of the training loop.

Why it costs
    The call returns memory to the driver, which waits for the GPU; the next step must allocate it again, which is also
    slow. No tensor gets memory that it would not have got without the call.

How the gain is estimated
    Measured: the time of the calls. The time to allocate again adds to this and is unknown without a record of GPU
    kernels.

How to fix
    Remove the call. Against fragmentation, set PYTORCH_ALLOC_CONF=expandable_segments:True.

When it is wrong
    When another process on the same GPU needs the memory between the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("trainer", "steady_steps", "recorder")


@dataclass(frozen=True)
class Limits:
    """The thresholds of this rule."""

    min_calls_per_step: float = 0.1
    """A call per epoch does no harm."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Count the calls in the steady loop."""
    account, steps = evidence.get(find_account, trainer), evidence.get(find_steps, trainer)
    calls = evidence.timeline.spans.filter(
        pl.col("operation") == "empty_cache",
        pl.col("track") == trainer.thread,
        pl.col("start").is_between(account.start, account.end),
    )
    sums = account.sums.filter(pl.col("operation") == "empty_cache")
    count = calls.height + int(sums["count"].sum())
    per_step = count / max(1, steps.steady)
    if per_step < limits.min_calls_per_step:
        return Clear(f"torch.cuda.empty_cache() was called {units.counted(count, 'time')} in the loop.")
    spent = int(calls["duration"].sum()) + int(sums["duration"].sum())
    share = spent / max(1, account.total_ns)
    known = calls.filter(pl.col("file").is_not_null())
    lines = known.group_by("file", "line", "function").agg(pl.col("duration").sum()).sort("duration", "line")
    line = line_of(*lines.select("file", "line", "function").row(-1)) if lines.height else None
    return [
        Finding(
            title=f"torch.cuda.empty_cache() at {place(line, 'one line')} takes {SHARE} of the training loop, plus "
            "the time to allocate the memory again.",
            share=share,
            saving=(max(0.0, 1.0 - 2 * share), 1.0 - share),
            evidence=(
                f"{units.counted(count, 'call')}, {units.number(per_step)} per step, "
                f"{units.duration(spent / max(1, count))} each.",
            ),
            advice=f"Remove the call at {place(line, 'that line')}. Against fragmentation, set "
            "PYTORCH_ALLOC_CONF=expandable_segments:True.",
            verdict="memory-bound",
            location=locate(line),
        )
    ]
