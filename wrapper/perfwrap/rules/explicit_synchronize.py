"""The program itself tells the host to wait for the GPU.

What it finds
    Calls of torch.cuda.synchronize() and its kin (of streams and events, torch.accelerator, torch.xpu, torch.mps) in
    the training loop, line by line, that block the training thread during 2 % of it or more while the GPU has time
    left.

Why it costs
    The host may run ahead of the GPU. After a synchronisation the GPU has nothing to do until the next launches come.

How the saving is worked out
    Inferred: from nothing to the smaller of the blocked time and the GPU's idle share.

How to fix
    Take the call out. To time a part of the step, record two torch.cuda.Event(enable_timing=True) and read them some
    steps later.

When it is wrong
    When the call guards memory that the host or another library reads or writes. With a busy GPU the call only shows
    where the host waits for useful work; the rule then stays quiet.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.syncs import SyncLine
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place
from perfwrap.rules.on_gpu import ON_CPU, UNKNOWN_IDLE, idle_share, stayed_on_cpu

NEEDS = ("syncs", "steady_steps", "copies")

CALL = "synchronize"
"""Ends the names of the calls that wait and bring nothing back."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for lines that synchronise."""
    lines = [line for line in evidence.syncs(trainer) if line.name.endswith(CALL)]
    if not lines and stayed_on_cpu(evidence, trainer):
        return ON_CPU
    slow = [line for line in lines if line.share >= QUIET_SHARE]
    if not slow:
        return Clear(
            f"Explicit synchronisation blocks {units.share(sum(line.share for line in lines))} of the loop."
        )
    idle = idle_share(evidence, trainer)
    if idle is None:
        return NotChecked(
            f"{place(slow[0].where, 'A line')} waits for the GPU during {units.share(slow[0].share)} of the loop; "
            f"{UNKNOWN_IDLE}."
        )
    if idle < QUIET_SHARE:
        return Clear(f"{place(slow[0].where, 'A line')} waits for the GPU, which is hardly ever idle.")
    step_ns = mean_step_ns(evidence, trainer)
    return [_finding(line, min(idle, line.share), step_ns) for line in slow]


def _finding(line: SyncLine, share: float, step_ns: float) -> Finding:
    """Return the finding about one line."""
    where = place(line.where, "one line")
    return Finding(
        title=f"{line.name}() at {where} makes the host wait for the GPU, and costs up to {SHARE} of the training "
        "loop.",
        share=share,
        saving=saving(step_ns, 0.0, share * step_ns),
        evidence=(
            f"{units.number(line.per_step)} calls per step, {units.duration(line.blocked_ns_per_step)} blocked per "
            "step.",
        ),
        advice=f"Take the synchronisation at {where} out of the step; to time the GPU, use events and read them "
        "some steps later.",
        verdict="sync-bound",
        location=locate(line.where),
        experiment="defer-item",
        confidence="inferred",
        claims=_claims(line),
    )


def _claims(line: SyncLine) -> pl.Expr:
    """Return the segments of the account inside this call on this line."""
    own = (pl.col("part") == "sync") & (pl.col("name") == line.name)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)
