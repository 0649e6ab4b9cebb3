"""A line of the loop brings values to the host and makes it wait for them.

What it finds
    Calls such as .item(), .tolist(), .cpu(), .numpy(), float(t), bool(t), print(t) and nonzero(), line by
    line, that block the training thread during 2 % of the training loop or more and that may cost something.

Why it costs
    On a GPU the host runs ahead of the device; a value that is read makes it wait until the GPU has caught
    up, and afterwards the GPU waits for the next launches. Blocking on a busy GPU costs nothing by itself:
    the cost is the idle time that follows. On a CPU a read costs about a microsecond, so a line is blamed
    there only when its own blocked time is large, for instance because it copies a large tensor into Python
    lists.

How the saving is worked out
    On a CPU: measured, the blocked time of the line. On a GPU without a record of its kernels: a range from
    nothing to the smaller of the blocked time and the GPU's idle share (one minus its sampled utilisation),
    inferred.

How to fix
    Read the value every N steps instead of each step, keep running sums on the device and read them once, use
    torch.where instead of branching on a value, log asynchronously.

When it is wrong
    When the value decides what the next step does (early stopping inside a step, dynamic loss logic). With
    high utilisation the line only shows where the host waits for useful work; the rule then stays quiet.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import gpu_utilization
from perfwrap.measures.syncs import SyncLine
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("syncs", "steady_steps")

FULL_UTILIZATION = 0.95
"""Sampled GPU utilisation from which blocked time is taken for waiting on useful work. NVML calls a sample
busy when any kernel ran in it, so the true idle share may be larger than one minus this; never smaller."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for lines that block the loop."""
    lines = evidence.syncs(trainer)
    blocked = [line for line in lines if line.share >= QUIET_SHARE]
    if not blocked:
        total = units.share(sum(line.share for line in lines))
        return Clear(f"Reading values blocks {total} of the loop in all, no line of it 2 % or more.")
    utilization = gpu_utilization(evidence)
    on_gpu = [line for line in blocked if line.on_gpu]
    found = [_on_cpu(line) for line in blocked if not line.on_gpu]
    if on_gpu and utilization is None:
        return found or NotChecked(
            f"{place(on_gpu[0].where, 'A line')} waits for the GPU during {units.share(on_gpu[0].share)} of "
            "the loop; whether that costs anything needs the GPU's utilisation (run with monitors)."
        )
    if on_gpu and utilization is not None and utilization < FULL_UTILIZATION:
        found += [_on_gpu(line, utilization) for line in on_gpu]
    if found:
        return [finding for finding in found if finding.share >= QUIET_SHARE] or Clear(
            "The GPU is hardly ever idle."
        )
    return Clear(
        f"{place(on_gpu[0].where, 'A line')} waits for the GPU, which was busy {units.share(utilization)} "
        "of the time: waiting for useful work costs nothing."
    )


def _on_cpu(line: SyncLine) -> Finding:
    """Return the finding about a line that is slow by itself."""
    return Finding(
        title=f"{SHARE} of the training loop is inside {line.name} at {place(line.where, 'one line')}.",
        share=line.share,
        saving=(1.0 - line.share, 1.0 - line.share),
        evidence=(_calls(line),),
        advice=f"Convert less, or less often, at {place(line.where, 'that line')}: the tensors are on the "
        "CPU, so this is the cost of the conversion itself.",
        verdict="sync-bound",
        location=locate(line.where),
        claims=_claims(line),
    )


def _on_gpu(line: SyncLine, utilization: float) -> Finding:
    """Return the finding about a line that makes the host wait for a GPU with idle time."""
    share = min(line.share, 1.0 - utilization)
    return Finding(
        title=f"{line.name} at {place(line.where, 'one line')} makes the host wait for the GPU, and costs "
        f"up to {SHARE} of the training loop.",
        share=share,
        saving=(1.0 - share, 1.0),
        evidence=(
            _calls(line),
            f"The GPU was busy in {units.share(utilization)} of the samples; what part of its idle time "
            "follows this line is not known without a record of kernels.",
        ),
        advice=_less_often(line),
        verdict="sync-bound",
        location=locate(line.where),
        experiment="defer-item",
        confidence="inferred",
        claims=_claims(line),
    )


def _calls(line: SyncLine) -> str:
    """Return how often and how long."""
    return (
        f"{units.counted(line.count, 'call')} in the steady loop, {units.number(line.per_step)} per step, "
        f"{units.duration(line.blocked_ns_per_step)} blocked per step."
    )


def _less_often(line: SyncLine) -> str:
    """Return the advice that holds on every device."""
    where = place(line.where, "that line")
    return (
        f"Read the value at {where} every 50 steps or so, or keep it on the device and read it once per "
        "epoch."
    )


def _claims(line: SyncLine) -> pl.Expr:
    """Return the segments of the account inside this call on this line."""
    own = pl.col("part").is_in(["sync", "transfer"]) & (pl.col("name") == line.name)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)
