"""Gradients are overwritten with zeros instead of being freed.

What it finds
    Calls of zero_grad(set_to_none=False) that take at least 2 % of the training loop, with their line.

Why it costs
    Every gradient is written once with zeros, and read and written again when the backward pass adds to it. If it is
    None, the backward pass writes it once. Tensors without a new gradient are also zeroed, and the optimizer then
    updates them for nothing.

How the gain is estimated
    The time of the calls is measured. At best all of it disappears, at worst half, because freed gradients must be
    allocated again. Savings in the backward pass and the optimizer are not counted. On a GPU the lower bound is no
    gain, because the host may run ahead.

How to fix
    Call zero_grad() without set_to_none=False; None is the default since PyTorch 2.0.

When it is wrong
    When the program keeps a reference to a gradient, or expects zeros instead of None.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.call_sites import find_call_sites
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("steady_steps", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_saved_share: float = 0.5
    """Share of the time that is saved at worst: freed gradients are allocated again."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for lines that write zeros."""
    lines = dict.fromkeys(
        site.where
        for site in evidence.get(find_call_sites, trainer, "zero_grad")
        if site.options.get("set_to_none") == "False"
    )
    account = evidence.get(find_account, trainer)
    shares = {line: account.share_of(_claims(line)) for line in lines}
    slow = [line for line, share in shares.items() if share >= limits.min_reported_share]
    if not slow:
        if lines:
            return Clear(
                f"Writing zeros into gradients takes {units.share(sum(shares.values()))} of the loop."
            )
        return Clear("No recorded call writes zeros into gradients.")
    step_ns = mean_step_ns(evidence, trainer)
    on_gpu = trains_on_gpu(evidence, trainer)
    return [_finding(line, shares[line], step_ns, on_gpu, limits) for line in slow]


def _finding(line: Line, share: float, step_ns: float, on_gpu: bool, limits: Limits) -> Finding:
    """Return the finding about one line."""
    best, worst = saving(step_ns, limits.min_saved_share * share * step_ns, share * step_ns)
    return Finding(
        title=f"{SHARE} of the training loop is zero_grad(set_to_none=False) at {place(line, '')}.",
        share=share,
        evidence=(f"Writing zeros takes {units.duration(share * step_ns)} per step.",),
        options=(
            Option(
                f"Remove set_to_none=False at {place(line, '')}, so that gradients are freed instead.",
                (best, 1.0 if on_gpu else worst),
                experiment="set-to-none",
            ),
        ),
        verdict="launch-bound" if on_gpu else "python-bound",
        location=locate(line),
        confidence="inferred" if on_gpu else "measured",
        claims=_claims(line),
    )


def _claims(line: Line) -> pl.Expr:
    """Select the segments of the account inside the calls on this line."""
    own = (pl.col("operation") == "zero_grad") & (pl.col("part") == "optimizer")
    return own & (pl.col("file") == line.file) & (pl.col("line") == line.line)
