"""Gradient norms are computed tensor by tensor in each step.

What it finds
    Lines that read one value per model tensor between the backward pass and the next forward pass (norms of gradients
    or weights by hand, with .item()), and on a GPU clipping with foreach=False, that take at least 2 % of the training
    loop.

Why it costs
    Each tensor needs one to three calls of torch, and each read of a GPU value makes the host wait. One call for all
    tensors avoids both.

How the gain is estimated
    The time is measured. If the values are read only every 50 steps, nearly all of the time disappears; if one
    torch.nn.utils.get_total_norm() per step replaces the reads, at least 10 % (measured on a CPU: 0 to 79 % with 60 to
    400 tensors). For clipping on a GPU the gain is estimated. On a CPU foreach saves little (0 to 23 %; less than
    nothing for large tensors), so clipping is not reported there.

How to fix
    Use the norm that clip_grad_norm_() returns, or torch.nn.utils.get_total_norm(), and read it every N steps.
    Remove foreach=False.

When it is wrong
    When the program needs the norms of single tensors in each step. When foreach=False was chosen to save GPU memory.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import saving, without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.call_sites import find_call_sites
from perfwrap.measures.loop.optimizers import find_optimizers
from perfwrap.measures.loop.syncs import SyncLine, find_syncs
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("steady_steps", "syncs", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_reads_saved: float = 0.1
    max_reads_saved: float = 0.98
    """Share of the reads' time that is saved: at worst with one norm per step, at best with one every 50 steps."""
    min_clipping_saved: float = 0.0
    max_clipping_saved: float = 0.9
    """Share of the host's clipping time that foreach saves on a GPU, where one launch replaces some hundred; nothing if
    the GPU is the limit."""
    min_tensors: int = 8
    """Values read per step by one line; fewer may be a few losses."""
    min_tensors_share: float = 0.5
    """Values read per step over the tensors that the optimizers update, from which a line loops over the model: some
    tensors have no gradient, some programs read only weights."""
    max_reads_per_tensor: int = 3
    """Reads per tensor and step of one line; more reads are of something else, such as pixels."""
    min_share_after: float = 0.8
    """Share of the reads that must follow these phases."""


AFTER = ("backward", "optimizer")
"""The phases that the reads follow: gradients exist from the backward pass until they are cleared.

Without recorded forward passes, what follows the optimizer may be the next step's model, as in pyro.
"""

PHASES = ("data", "forward", "backward", "optimizer")


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for clipping and for reads that loop over the model's tensors."""
    account, step_ns = evidence.get(find_account, trainer), mean_step_ns(evidence, trainer)
    found = [
        finding
        for line in _slow_clips(evidence, trainer)
        if (finding := _clipping(line, account, step_ns, limits)).share >= limits.min_reported_share
    ]
    tensors = sum(use.tensors or 0 for use in evidence.get(find_optimizers, trainer))
    for line in evidence.get(find_syncs, trainer):
        if line.where is not None and _loops_over_model(line, tensors, account, limits):
            found.append(_reads(line, line.where, tensors, account, step_ns, limits))
    found = [finding for finding in found if finding.share >= limits.min_reported_share]
    return found or Clear("No line spends much time looping over the model's tensors.")


def _slow_clips(evidence: Evidence, trainer: Trainer) -> list[Line]:
    """Return the lines that clip with foreach=False on a GPU."""
    if not trains_on_gpu(evidence, trainer):
        return []
    sites = evidence.get(find_call_sites, trainer, "clip")
    return list(dict.fromkeys(site.where for site in sites if site.options.get("foreach") == "False"))


def _loops_over_model(line: SyncLine, tensors: int, account: Account, limits: Limits) -> bool:
    """Return whether a line reads about one value per tensor, after the backward pass."""
    least = max(limits.min_tensors, limits.min_tensors_share * tensors)
    if not least <= line.per_step <= limits.max_reads_per_tensor * tensors:
        return False
    phase = pl.when(pl.col("operation").is_in(PHASES)).then("operation").forward_fill()
    own = account.segments.with_columns(phase.alias("phase")).filter(_read(line))
    after = AFTER if (account.segments["operation"] == "forward").any() else AFTER[:1]
    return bool(own.height) and float(own["phase"].is_in(after).sum()) / own.height >= limits.min_share_after


def _clipping(line: Line, account: Account, step_ns: float, limits: Limits) -> Finding:
    """Return the finding about a line that clips tensor by tensor."""
    claims = (pl.col("operation") == "clip") & (pl.col("part") == "optimizer")
    claims &= (pl.col("file") == line.file) & (pl.col("line") == line.line)
    share = account.share_of(claims)
    return Finding(
        title=f"{SHARE} of the training loop is gradient clipping with foreach=False, tensor by tensor, at "
        f"{place(line, '')}.",
        share=share,
        evidence=(f"{units.duration(share * step_ns)} per step.",),
        options=(
            Option(
                f"Remove foreach=False at {place(line, '')}.",
                saving(
                    step_ns,
                    limits.min_clipping_saved * share * step_ns,
                    limits.max_clipping_saved * share * step_ns,
                ),
            ),
        ),
        verdict="launch-bound",
        location=locate(line),
        confidence="inferred",
        claims=claims,
    )


def _reads(
    line: SyncLine, where: Line, tensors: int, account: Account, step_ns: float, limits: Limits
) -> Finding:
    """Return the finding about a line that reads a value for each tensor."""
    claims = _read(line) | _between(where)
    share = account.share_of(claims)
    return Finding(
        title=f"{SHARE} of the training loop is spent at {place(where, '')}, which reads one value per model "
        "tensor.",
        share=share,
        evidence=(
            f"{units.number(line.per_step)} calls of {line.name} per step after the backward pass, for "
            f"{units.counted(tensors, 'tensor')}; {units.duration(share * step_ns)} per step, including the code "
            "between the calls.",
        ),
        options=(
            Option(
                f"Replace the loop at {place(where, '')} by torch.nn.utils.get_total_norm() or the result of "
                "clip_grad_norm_().",
                saving(
                    step_ns,
                    limits.min_reads_saved * share * step_ns,
                    limits.max_reads_saved * share * step_ns,
                ),
                f"{units.number(line.per_step)} reads per step",
                details="Read that value only every 50 steps or so.",
            ),
            Option(f"Run the loop at {place(where, '')} only every 50 steps or so.", without(share)),
        ),
        verdict="sync-bound" if line.on_gpu else "python-bound",
        location=locate(where),
        confidence="inferred",
        claims=claims,
    )


def _read(line: SyncLine) -> pl.Expr:
    """Select the segments inside the reads of a line."""
    own = pl.col("part").is_in(["sync", "transfer"]) & (pl.col("name") == line.name)
    if line.where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == line.where.file) & (pl.col("line") == line.where.line)


def _between(where: Line) -> pl.Expr:
    """Select the segments of the program's own code between two reads of a line."""
    own = (pl.col("part") == "python") & (pl.col("after_operation") == "sync")
    own &= (pl.col("before_operation") == "sync") & (pl.col("until_line") == where.line)
    return own & (pl.col("file") == where.file) & (pl.col("line") == where.line)
