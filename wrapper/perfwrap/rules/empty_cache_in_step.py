"""The loop calls torch.cuda.empty_cache() again and again.

What it finds
    Calls of torch.cuda.empty_cache() in at least one in ten steps of the training loop.

Why it costs
    The call gives memory back to the driver, which waits for the GPU; the next step must ask for it again, which is
    slow, too. No tensor gets memory by it that would not have got it otherwise.

How the saving is worked out
    Measured: the time of the calls. What asking again takes comes on top and is not known without a record of the
    GPU's kernels.

How to fix
    Remove the call. Against fragmentation: PYTORCH_ALLOC_CONF=expandable_segments:True.

When it is wrong
    When another process on the same GPU needs the memory between the steps.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import line_of
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("trainer", "steady_steps", "recorder")

LEAST_PER_STEP = 0.1
"""Once per epoch is no harm."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Count the calls in the steady loop."""
    account, steps = evidence.account(trainer), evidence.steps(trainer)
    calls = evidence.timeline.spans.filter(
        pl.col("operation") == "empty_cache",
        pl.col("track") == trainer.thread,
        pl.col("start").is_between(account.start, account.end),
    )
    sums = account.sums.filter(pl.col("operation") == "empty_cache")
    count = calls.height + int(sums["count"].sum())
    per_step = count / max(1, steps.steady)
    if per_step < LEAST_PER_STEP:
        return Clear(f"torch.cuda.empty_cache() was called {units.counted(count, 'time')} in the loop.")
    spent = int(calls["duration"].sum()) + int(sums["duration"].sum())
    share = spent / max(1, account.total_ns)
    known = calls.filter(pl.col("file").is_not_null())
    lines = known.group_by("file", "line", "function").agg(pl.col("duration").sum()).sort("duration", "line")
    line = line_of(*lines.select("file", "line", "function").row(-1)) if lines.height else None
    return [
        Finding(
            title=f"torch.cuda.empty_cache() at {place(line, 'one line')} takes {SHARE} of the training loop, and "
            "asking for the memory again comes on top.",
            share=share,
            saving=(max(0.0, 1.0 - 2 * share), 1.0 - share),
            evidence=(
                f"{units.counted(count, 'call')}, {units.number(per_step)} per step, "
                f"{units.duration(spent / max(1, count))} each.",
            ),
            advice=f"Remove the call at {place(line, 'that line')}; against fragmentation set "
            "PYTORCH_ALLOC_CONF=expandable_segments:True.",
            verdict="memory-bound",
            location=locate(line),
        )
    ]
