"""The model is evaluated with gradients enabled.

What it finds
    Forward passes in validation phases that keep data for a backward pass that never runs, if disabling this may save
    at least 2 % of the training loop.

Why it costs
    Each operation stores its inputs for the backward pass, and all activations stay in memory until the result is
    freed: more memory, more page faults, and on a GPU a higher peak.

How the gain is estimated
    The time of these forward passes is measured. The gain is estimated: 0 to 40 % of it was measured on a CPU (none for
    multilayer perceptrons, most for convolutions and transformers). The memory is saved in addition.

How to fix
    Wrap the evaluation in torch.inference_mode() or torch.no_grad(). model.eval() alone does not disable gradients.

When it is wrong
    When the evaluation needs gradients (adversarial examples, meta-learning): a backward pass then follows, and the
    phase does not count as validation.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.validation import Validation, find_validation
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("steady_steps", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    max_saved_share: float = 0.4
    """Part of a forward pass that is saved at best (measured, see above)."""


def without_gradients(validation: Validation) -> str:
    """Return what disables the gradients of a validation, and only of that."""
    where = place(validation.grad_line, "the evaluation")
    if validation.grad_line_trains:
        return (
            f"Wrap the call that evaluates through {where} in torch.no_grad(); training runs that line too, and needs "
            "gradients there."
        )
    return f"Wrap the evaluation at {where} in torch.inference_mode(); model.eval() alone does not disable gradients."


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the forward passes of the validation phases."""
    validation = evidence.get(find_validation, trainer)
    if not validation.count:
        return Clear("There was no validation.")
    if not validation.with_grad:
        return Clear("Validation ran without gradients.")
    forward = validation.grad_share
    share = limits.max_saved_share * forward
    if share < limits.min_reported_share:
        return Clear(f"Validation forward passes with gradients take {units.share(forward)} of the loop.")
    step_ns = mean_step_ns(evidence, trainer)
    where = place(validation.grad_line, "the evaluation")
    return [
        Finding(
            title=f"The forward pass at {where} evaluates with gradients enabled, which may cost up to {SHARE} of the "
            "training loop.",
            share=share,
            evidence=(
                f"Such forward passes take {units.share(forward)} of the loop and keep their activations in memory.",
            ),
            options=(
                Option(
                    without_gradients(validation),
                    saving(step_ns, 0.0, share * step_ns),
                ),
            ),
            verdict="checkpoint/validation-bound",
            location=locate(validation.grad_line),
            confidence="inferred",
            claims=(pl.col("part") == "validation") & (pl.col("operation") == "forward"),
        )
    ]
