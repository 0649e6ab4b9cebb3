"""The norm of the gradients is worked out tensor by tensor, in each step.

What it finds
    Lines that read one value for each of the model's tensors between the backward pass and the next forward pass
    (norms of gradients or weights by hand, with .item()), and on a GPU clipping with foreach=False, that take 2 % of
    the training loop or more.

Why it costs
    Each tensor takes a call of torch or three, and each read of a value on a GPU makes the host wait for it. One call
    over all tensors needs neither.

How the saving is worked out
    The time is measured. Of reading values one by one nearly all goes when it is done every 50 steps, and at worst 10
    % when one torch.nn.utils.get_total_norm() takes its place in each step (measured on a CPU: 0 to 79 % with 60 to
    400 tensors). For clipping on a GPU the gain is inferred. On a CPU foreach takes off next to nothing (0 to 23 %,
    for large tensors less than nothing), so clipping is not blamed there.

How to fix
    Use the norm that clip_grad_norm_() returns anyway, or torch.nn.utils.get_total_norm(), and read it every N steps.
    Leave foreach=False away.

When it is wrong
    When the norms of single tensors decide something in each step. When foreach=False was chosen for want of GPU
    memory.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.account import Account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.syncs import SyncLine
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps", "syncs", "options")

READS_LEAST, READS_MOST = 0.1, 0.98
"""Part of reading tensor by tensor that goes: at worst with one norm in each step, at best with one every 50 steps."""

CLIPPING_LEAST, CLIPPING_MOST = 0.0, 0.9
"""Part of the host's time in clipping that foreach takes off on a GPU, where launches per tensor become launches per
some hundred; nothing where the GPU is the limit."""

LEAST_TENSORS = 8
"""Values read per step by one line below which it may be a few losses."""

MOST_TENSORS = 0.5
"""Values read per step, over the tensors that the optimizers update, from which a line goes through the model: some
tensors have no gradient, some programs look at weights only."""

READS_PER_TENSOR = 3
"""Values of one tensor that a line may read in a step; one that reads more reads something else, pixels say."""

AFTER = ("backward", "optimizer")
"""What the reads come after: gradients are there from the backward pass on, until they are cleared."""

MOSTLY = 0.8
"""Share of the reads that must come after it."""

PHASES = ("data", "forward", "backward", "optimizer")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for clipping and for reads that go through the model's tensors."""
    account, step_ns = evidence.account(trainer), mean_step_ns(evidence, trainer)
    found = [
        finding
        for line in _slow_clips(evidence, trainer)
        if (finding := _clipping(line, account, step_ns)).share >= QUIET_SHARE
    ]
    tensors = sum(use.tensors or 0 for use in evidence.optimizers(trainer))
    for line in evidence.syncs(trainer):
        if line.where is not None and _goes_through(line, tensors, account):
            found.append(_reads(line, line.where, tensors, account, step_ns))
    found = [finding for finding in found if finding.share >= QUIET_SHARE]
    return found or Clear("No line goes through the model's tensors one by one for long.")


def _slow_clips(evidence: Evidence, trainer: Trainer) -> list[Line]:
    """Return the lines that clip with foreach=False on a GPU."""
    if not trains_on_gpu(evidence, trainer):
        return []
    sites = evidence.call_sites(trainer, "clip")
    return list(dict.fromkeys(site.where for site in sites if site.options.get("foreach") == "False"))


def _goes_through(line: SyncLine, tensors: int, account: Account) -> bool:
    """Say whether a line reads about one value for each tensor, after the backward pass."""
    least = max(LEAST_TENSORS, MOST_TENSORS * tensors)
    if not least <= line.per_step <= READS_PER_TENSOR * tensors:
        return False
    phase = pl.when(pl.col("operation").is_in(PHASES)).then("operation").forward_fill()
    own = account.segments.with_columns(phase.alias("phase")).filter(_read(line))
    return bool(own.height) and float(own["phase"].is_in(AFTER).sum()) / own.height >= MOSTLY


def _clipping(line: Line, account: Account, step_ns: float) -> Finding:
    """Return the finding about a line that clips tensor by tensor."""
    claims = (pl.col("operation") == "clip") & (pl.col("part") == "optimizer")
    claims &= (pl.col("file") == line.file) & (pl.col("line") == line.line)
    share = account.share_of(claims)
    return Finding(
        title=f"{SHARE} of the training loop is clipping at {place(line, '')}, with foreach=False: tensor by tensor.",
        share=share,
        saving=saving(step_ns, CLIPPING_LEAST * share * step_ns, CLIPPING_MOST * share * step_ns),
        evidence=(f"{units.duration(share * step_ns)} per step.",),
        advice=f"Take foreach=False out of {place(line, '')}.",
        verdict="launch-bound",
        location=locate(line),
        confidence="inferred",
        claims=claims,
    )


def _reads(line: SyncLine, where: Line, tensors: int, account: Account, step_ns: float) -> Finding:
    """Return the finding about a line that reads a value for each tensor."""
    claims = _read(line) | _between(where)
    share = account.share_of(claims)
    return Finding(
        title=f"{SHARE} of the training loop goes into {place(where, '')}, which reads a value for each of the "
        "model's tensors.",
        share=share,
        saving=saving(step_ns, READS_LEAST * share * step_ns, READS_MOST * share * step_ns),
        evidence=(
            f"{units.number(line.per_step)} calls of {line.name} per step after the backward pass, for "
            f"{units.counted(tensors, 'tensor')}; {units.duration(share * step_ns)} per step with the code "
            "between them.",
        ),
        advice=f"Replace the loop around {place(where, '')} by torch.nn.utils.get_total_norm(), or use what "
        "clip_grad_norm_() returns, and read the result once, every 50 steps or so.",
        verdict="sync-bound" if line.on_gpu else "python-bound",
        location=locate(where),
        confidence="inferred",
        claims=claims,
    )


def _read(line: SyncLine) -> pl.Expr:
    """Return the segments inside the reads of a line."""
    own = pl.col("part").is_in(["sync", "transfer"]) & (pl.col("name") == line.name)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)


def _between(where: Line) -> pl.Expr:
    """Return the segments of the program's own code from one read of a line to its next."""
    own = (pl.col("part") == "python") & (pl.col("after_operation") == "sync")
    own &= (pl.col("before_operation") == "sync") & (pl.col("until_line") == where.line)
    return own & (pl.col("file") == where.file) & (pl.col("line") == where.line)
