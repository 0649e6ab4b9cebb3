"""A large part of the loop validates instead of training.

What it finds
    Validation phases (stretches that use the model without training it) that take 20 % of the training loop
    or more.

Why it costs
    Validation does not move the model. How much of it is enough is a choice, and often one that nobody made.

How the saving is worked out
    Arithmetic on the measured share: at worst half of it goes (validating half as often), at best three
    quarters (a quarter as often).

How to fix
    Validate more rarely or on a part of the data, with a larger batch, under torch.inference_mode().

When it is wrong
    When the validation itself is the purpose of the run, or the run was cut short after its first epochs.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import busiest_line
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps",)

LARGE_SHARE = 0.20
"""Share of the loop from which validation counts as a problem; the catalogue's figure. Below, it is a
choice."""

RARER_LEAST, RARER_MOST = 0.5, 0.75
"""Parts of the validation time that go when it runs half as often, and a quarter as often."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the validation phases of the loop."""
    validation = evidence.validation(trainer)
    share = validation.share
    if share < LARGE_SHARE:
        return Clear(f"Validation takes {units.share(share)} of the loop.")
    line = busiest_line(evidence.account(trainer), "validation")
    where = place(line, "the script")
    estimated = evidence.account(trainer).share_of((pl.col("part") == "validation") & pl.col("estimated")) > 0
    seen = " were seen in detail" if estimated else ""
    words = [
        f"{units.counted(validation.count, 'validation phase')}{seen}, {units.duration(validation.median_ns)} "
        "each as a median.",
    ]
    inference = ""
    if validation.grad_share >= QUIET_SHARE:
        at = place(validation.grad_line, "some lines")
        words.append(f"Forward passes of the validation at {at} ran with gradients enabled.")
        inference = f" Wrap what is at {at} in torch.inference_mode(), which it lacks."
    return [
        Finding(
            title=f"{SHARE} of the training loop is validation, most of it at {where}.",
            share=share,
            saving=(1.0 - RARER_MOST * share, 1.0 - RARER_LEAST * share),
            evidence=tuple(words),
            advice=f"Validate half as often, or on a part of the data with a larger batch.{inference}",
            verdict="checkpoint/validation-bound",
            location=locate(line),
            experiment="no-validation",
            claims=pl.col("part") == "validation",
        )
    ]
