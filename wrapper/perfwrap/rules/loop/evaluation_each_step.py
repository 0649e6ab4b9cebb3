"""The model is evaluated in each training step.

What it finds
    Forward passes in evaluation mode and without gradients in most steps, of a model that is also trained, whose result
    the program reads before it trains on: at least 10 % of the training loop.

Why it costs
    The evaluation takes about as long as the forward pass of the training. Where a step trains on all of the data, as
    on one graph, an evaluation after each epoch is one in each step.

How the gain is estimated
    The time of these forward passes is measured. At best nine tenths of it are saved, by an evaluation in each tenth
    step; at worst nothing, because the result may be needed.

How to fix
    Evaluate every N steps, and at the end.

When it is wrong
    When the result decides what the step does: an action of a policy, the choice of samples, early stopping that must
    see each step.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.step_evaluation import find_step_evaluation
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("phases", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = 0.10
    """Share of the loop from which an evaluation in each step is reported."""
    every: int = 10
    """The number of steps of which one would have an evaluation."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for forward passes that evaluate in most steps."""
    found = evidence.get(find_step_evaluation, trainer)
    if found is None:
        return Clear("Most steps contain no evaluation.")
    if found.share < limits.min_share:
        return Clear(f"The evaluation in most steps takes {units.share(found.share)} of the loop.")
    where = place(found.where, "")
    return [
        Finding(
            title=f"{SHARE} of the training loop is the forward pass at {where}, which evaluates the model in most "
            "steps.",
            share=found.share,
            evidence=(
                f"{units.duration(found.share * mean_step_ns(evidence, trainer))} per step. It runs in evaluation mode "
                "without gradients, and the program reads a value of the result before it trains on.",
            ),
            options=(
                Option(
                    f"Evaluate at {where} only every {limits.every} steps or so.",
                    (1.0 - found.share * (1.0 - 1.0 / limits.every), 1.0),
                    details="If the result decides what the step does, it is needed.",
                ),
            ),
            location=locate(found.where),
            confidence="inferred",
        )
    ]
