"""Gradients are overwritten with zeros instead of being let go.

What it finds
    Calls of zero_grad(set_to_none=False) that take 2 % of the training loop or more, with their line.

Why it costs
    Every gradient is written once with zeros, and read and written once more when the backward pass adds to it. Left
    empty, it is written once by the backward pass. Tensors without a new gradient are zeroed all the same, and the
    optimizer then updates them for nothing.

How the saving is worked out
    The time of the calls is measured. At best all of it goes, at worst half: what was cleared has to be allocated
    anew. What backward and optimizer save besides is not counted. On a GPU, where the host may run ahead, it may be
    nothing.

How to fix
    Call zero_grad() without set_to_none=False; None has been the default since PyTorch 2.0.

When it is wrong
    When something of the program's keeps a reference to a gradient, or expects zeros where it would find None.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps", "options")

LEAST_GONE = 0.5
"""Part of the time that goes at worst: what was cleared is allocated anew."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for lines that write zeros."""
    lines = dict.fromkeys(
        site.where
        for site in evidence.call_sites(trainer, "zero_grad")
        if site.options.get("set_to_none") == "False"
    )
    account = evidence.account(trainer)
    shares = {line: account.share_of(_claims(line)) for line in lines}
    slow = [line for line, share in shares.items() if share >= QUIET_SHARE]
    if not slow:
        if lines:
            return Clear(
                f"Writing zeros into gradients takes {units.share(sum(shares.values()))} of the loop."
            )
        return Clear("No recorded call writes zeros into gradients.")
    step_ns = mean_step_ns(evidence, trainer)
    on_gpu = trains_on_gpu(evidence, trainer)
    return [_finding(line, shares[line], step_ns, on_gpu) for line in slow]


def _finding(line: Line, share: float, step_ns: float, on_gpu: bool) -> Finding:
    """Return the finding about one line."""
    best, worst = saving(step_ns, LEAST_GONE * share * step_ns, share * step_ns)
    return Finding(
        title=f"{SHARE} of the training loop is zero_grad(set_to_none=False) at {place(line, '')}.",
        share=share,
        saving=(best, 1.0 if on_gpu else worst),
        evidence=(f"{units.duration(share * step_ns)} per step go into writing zeros.",),
        advice=f"Take set_to_none=False out of {place(line, '')}: gradients are then let go instead.",
        verdict="launch-bound" if on_gpu else "python-bound",
        location=locate(line),
        experiment="set-to-none",
        confidence="inferred" if on_gpu else "measured",
        claims=_claims(line),
    )


def _claims(line: Line) -> pl.Expr:
    """Return the segments of the account inside the calls on this line."""
    own = (pl.col("operation") == "zero_grad") & (pl.col("part") == "optimizer")
    return own & (pl.col("file") == line.file) & (pl.col("line") == line.line)
