"""The model is evaluated with gradients enabled.

What it finds
    Forward passes of validation phases that keep what a backward pass would need, which never comes; where doing
    without may save 2 % of the training loop or more.

Why it costs
    Each operation notes its inputs for the backward pass, and all activations stay in memory until the result is let
    go: more memory, more page faults, and on a GPU a higher peak.

How the saving is worked out
    The time of these forward passes is measured. How much of it goes is inferred: nothing to 40 % was measured on a
    CPU (multilayer perceptrons nothing, convolutions and transformers most). The memory comes on top.

How to fix
    Wrap the evaluation in torch.inference_mode() or torch.no_grad(); model.eval() alone does not do it.

When it is wrong
    When the evaluation needs gradients after all (adversarial examples, meta-learning): a backward pass then follows,
    and the phase is not taken for a validation.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps", "options")

MOST_GONE = 0.4
"""Part of a forward pass that goes at best; measured, see above."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the forward passes of the validation phases."""
    validation = evidence.validation(trainer)
    if not validation.count:
        return Clear("There was no validation.")
    if not validation.with_grad:
        return Clear("Validation ran without gradients.")
    forward = validation.grad_share
    share = MOST_GONE * forward
    if share < QUIET_SHARE:
        return Clear(
            f"Forward passes of the validation with gradients take {units.share(forward)} of the loop."
        )
    step_ns = mean_step_ns(evidence, trainer)
    where = place(validation.grad_line, "the evaluation")
    return [
        Finding(
            title=f"The forward pass at {where} evaluates with gradients enabled, which may cost up to {SHARE} of the "
            "training loop.",
            share=share,
            saving=saving(step_ns, 0.0, share * step_ns),
            evidence=(
                f"Such forward passes take {units.share(forward)} of the loop, and keep their activations in memory.",
            ),
            advice=f"Wrap the evaluation around {where} in torch.inference_mode(); model.eval() alone keeps "
            "gradients on.",
            verdict="checkpoint/validation-bound",
            location=locate(validation.grad_line),
            confidence="inferred",
            claims=(pl.col("part") == "validation") & (pl.col("operation") == "forward"),
        )
    ]
