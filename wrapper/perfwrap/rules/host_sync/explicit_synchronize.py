"""The program calls torch.cuda.synchronize() or a similar function in the loop.

What it finds
    Calls of torch.cuda.synchronize() and similar functions (of streams and events, torch.accelerator, torch.xpu,
    torch.mps) in the training loop, by line, that block the training thread during at least 2 % of it while the GPU has
    idle time.

Why it costs
    The host can run ahead of the GPU. After a synchronization the GPU has no work until the next launches arrive.

How the gain is estimated
    Estimated: from zero to the smaller of the blocked time and the GPU's idle share.

How to fix
    Remove the call. To time a part of the step, record two torch.cuda.Event(enable_timing=True) and read them some
    steps later.

When it is wrong
    When the call protects memory that the host or another library reads or writes. On a busy GPU the call only shows
    where the host waits for useful work; the rule then reports nothing.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.syncs import SyncLine, find_syncs
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    place,
)
from perfwrap.rules.on_gpu import ON_CPU, UNKNOWN_IDLE, idle_share, stayed_on_cpu

NEEDS = ("syncs", "steady_steps", "copies")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE


CALL = "synchronize"
"""The end of the names of calls that wait without returning data."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for lines that synchronize."""
    lines = [line for line in evidence.get(find_syncs, trainer) if line.name.endswith(CALL)]
    if not lines and stayed_on_cpu(evidence, trainer):
        return ON_CPU
    slow = [line for line in lines if line.share >= limits.min_reported_share]
    if not slow:
        return Clear(
            f"Explicit synchronization blocks {units.share(sum(line.share for line in lines))} of the loop."
        )
    idle = idle_share(evidence, trainer)
    if idle is None:
        return NotChecked(
            f"{place(slow[0].where, 'A line')} waits for the GPU {units.share(slow[0].share)} of the loop; "
            f"{UNKNOWN_IDLE}."
        )
    if idle < limits.min_reported_share:
        return Clear(f"{place(slow[0].where, 'A line')} waits for the GPU, which is almost never idle.")
    step_ns = mean_step_ns(evidence, trainer)
    return [_finding(line, min(idle, line.share), step_ns) for line in slow]


def _finding(line: SyncLine, share: float, step_ns: float) -> Finding:
    """Return the finding about one line."""
    where = place(line.where, "one line")
    return Finding(
        title=f"{line.name}() at {where} makes the host wait for the GPU, which costs up to {SHARE} of the training "
        "loop.",
        share=share,
        evidence=(
            f"{units.number(line.per_step)} calls per step, {units.duration(line.blocked_ns_per_step)} blocked per "
            "step.",
        ),
        options=(
            Option(
                f"Remove the synchronization at {where}.",
                saving(step_ns, 0.0, share * step_ns),
                f"{units.duration(line.blocked_ns_per_step)} blocked per step",
                "defer-item",
                "To time the GPU, use events and read them some steps later.",
            ),
        ),
        verdict="sync-bound",
        location=locate(line.where),
        confidence="inferred",
        claims=_claims(line),
    )


def _claims(line: SyncLine) -> pl.Expr:
    """Select the segments of the account inside this call on this line."""
    own = (pl.col("part") == "sync") & (pl.col("name") == line.name)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)
