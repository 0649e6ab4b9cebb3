"""Validation takes a large part of the loop.

What it finds
    Validation phases (code that uses the model without training it) that take at least 20 % of the training loop.

Why it costs
    Validation does not train the model. How much of it is needed is a choice, often one that was never made explicitly.

How the gain is estimated
    Arithmetic on the measured share: at worst half of it is saved (validate half as often), at best three quarters (a
    quarter as often).

How to fix
    Validate less often or on a part of the data, with a larger batch, under torch.inference_mode().

When it is wrong
    When validation is the purpose of the run, or the run was stopped after its first epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import busiest_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.validation import find_validation
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps",)


@dataclass(frozen=True)
class Limits:
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    large_share: float = 0.20
    """Share of the loop from which validation is a problem; below it, it is a choice."""
    min_saved_share: float = 0.5
    max_saved_share: float = 0.75
    """Share of the validation time that is saved by validating half as often, and a quarter as often."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the validation phases of the loop."""
    validation = evidence.get(find_validation, trainer)
    share = validation.share
    if share < limits.large_share:
        return Clear(f"Validation takes {units.share(share)} of the loop.")
    line = busiest_line(evidence.get(find_account, trainer), "validation")
    where = place(line, "the script")
    estimated = (
        evidence.get(find_account, trainer).share_of((pl.col("part") == "validation") & pl.col("estimated"))
        > 0
    )
    recorded = " were recorded in detail" if estimated else ""
    words = [
        f"{units.counted(validation.count, 'validation phase')}{recorded}, {units.duration(validation.median_ns)} "
        "each (median).",
    ]
    inference = ""
    if validation.grad_share >= limits.min_reported_share:
        at = place(validation.grad_line, "some lines")
        words.append(f"Forward passes of the validation at {at} ran with gradients enabled.")
        inference = f" Wrap the code at {at} in torch.inference_mode()."
    return [
        Finding(
            title=f"{SHARE} of the training loop is validation, mostly at {where}.",
            share=share,
            saving=(1.0 - limits.max_saved_share * share, 1.0 - limits.min_saved_share * share),
            evidence=tuple(words),
            advice=f"Validate half as often, or on a part of the data with a larger batch.{inference}",
            verdict="checkpoint/validation-bound",
            location=locate(line),
            experiment="no-validation",
            claims=pl.col("part") == "validation",
        )
    ]
