"""A line of the loop reads a value, so the host waits for the GPU or converts large tensors.

What it finds
    Calls such as .item(), .tolist(), .cpu(), .numpy(), float(t), bool(t), print(t) and nonzero(), by line, that block
    the training thread during at least 2 % of the training loop and may cost time.

Why it costs
    The host runs ahead of the GPU. Reading a value makes the host wait until the GPU has caught up; then the GPU waits
    for the next launches. Waiting for a busy GPU costs nothing by itself: the cost is the idle time that follows. On a
    CPU a read costs about 1 µs, so a line is reported there only if its own blocked time is large, for example because
    it converts a large tensor into Python lists.

How the gain is estimated
    On a CPU: the measured blocked time of the line. On a GPU, estimated: from zero to the smaller of the blocked time
    and the GPU's idle share (by its kernels or its sampled utilization, and by events around the phases). For a line
    that runs in each recorded step, the idle time after waits of the host is measured instead.

How to fix
    Read the value every N steps instead of each step, keep running sums on the GPU and read them once, use torch.where
    instead of branching on a value, log asynchronously.

When it is wrong
    When the value decides what the next step does (early stopping inside a step, dynamic loss logic). At high
    utilization the line only shows where the host waits for useful work; the rule then reports nothing.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without_measured
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
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
from perfwrap.rules.on_gpu import UNKNOWN_IDLE, idle_share

NEEDS = ("syncs", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_idle_share: float = 0.05
    """The GPU's idle share below which blocked time counts as waiting for useful work."""
    always_per_step: float = 1.0
    """Calls per step from which the recorded steps contain the line."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for lines that block the loop."""
    lines = evidence.get(find_syncs, trainer)
    blocked = [line for line in lines if line.share >= limits.min_reported_share]
    if not blocked:
        total = units.share(sum(line.share for line in lines))
        return Clear(f"Reading values blocks {total} of the loop in total, no single line 2 % or more.")
    idle = idle_share(evidence, trainer)
    on_gpu = [line for line in blocked if line.on_gpu]
    found = [_on_cpu(line) for line in blocked if not line.on_gpu]
    if on_gpu and idle is None:
        return found or NotChecked(
            f"{place(on_gpu[0].where, 'A line')} waits for the GPU {units.share(on_gpu[0].share)} of the loop; "
            f"{UNKNOWN_IDLE}."
        )
    if on_gpu and idle is not None and idle > limits.min_idle_share:
        after = _idle_after_waits(evidence, trainer)
        found += [
            _on_gpu(line, idle, after if line.per_step >= limits.always_per_step else None) for line in on_gpu
        ]
    if found:
        return [finding for finding in found if finding.share >= limits.min_reported_share] or Clear(
            "The GPU is almost never idle."
        )
    return Clear(
        f"{place(on_gpu[0].where, 'A line')} waits for the GPU, which was busy {units.share(1.0 - (idle or 0.0))} "
        "of the time: waiting for useful work costs nothing."
    )


def _idle_after_waits(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return the share of time in which the GPU was idle after the host had waited for it; None if not recorded."""
    step = evidence.get(find_ordinary_step, trainer)
    return None if step is None or "unknown" in step.idle else step.idle.get("sync", 0.0)


def _on_cpu(line: SyncLine) -> Finding:
    """Return the finding about a line that is slow by itself."""
    return Finding(
        title=f"{SHARE} of the training loop is spent in {line.name} at {place(line.where, 'one line')}.",
        share=line.share,
        evidence=(_calls(line),),
        options=(
            Option(
                f"Convert fewer values, or less often, at {place(line.where, 'that line')}.",
                without_measured(line.share),
                f"{units.number(line.per_step)} calls per step",
                details="The tensors are on the CPU, so the conversion itself is the cost.",
            ),
        ),
        verdict="sync-bound",
        location=locate(line.where),
        claims=_claims(line),
    )


def _on_gpu(line: SyncLine, idle: float, after: float | None) -> Finding:
    """Return the finding about a line that makes the host wait for a GPU with idle time.

    ``after`` is the idle time after waits, if the line's are among those recorded.
    """
    share = min(line.share, idle if after is None else after)
    where = place(line.where, "that line")
    words = f"The GPU is idle {units.share(idle)} of the time; how much of that follows this line is unknown."
    if after is not None:
        words = f"The GPU is idle {units.share(after)} of the time after the host has waited for it."
    return Finding(
        title=f"{line.name} at {place(line.where, 'one line')} makes the host wait for the GPU, which costs "
        f"up to {SHARE} of the training loop.",
        share=share,
        evidence=(
            _calls(line),
            words,
        ),
        options=(
            Option(
                f"Read the value at {where} only every 50 steps or so.",
                (1.0 - share, 1.0),
                f"{units.duration(line.blocked_ns_per_step)} blocked per step",
                "defer-item",
            ),
            Option(
                f"Keep the value of {where} on the GPU and read it once per epoch.",
                (1.0 - share, 1.0),
                experiment="defer-item",
            ),
        ),
        verdict="sync-bound",
        location=locate(line.where),
        confidence="inferred",
        claims=_claims(line),
    )


def _calls(line: SyncLine) -> str:
    """Return the number of calls and their time."""
    return (
        f"{units.counted(line.count, 'call')} in the steady loop, {units.number(line.per_step)} per step; "
        f"{units.duration(line.blocked_ns_per_step)} blocked per step."
    )


def _claims(line: SyncLine) -> pl.Expr:
    """Select the segments of the account inside this call on this line."""
    own = pl.col("part").is_in(["sync", "transfer"]) & (pl.col("name") == line.name)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)
