"""Gradients are computed and then thrown away.

What it finds
    Operations of backward whose results nothing uses: in a GAN the gradients of the discriminator's weights in the
    generator's step, which are set to zero before they are used, and gradients that flow into a generator whose output
    was not detached. They are reported from 3 % of the training loop.

Why it costs
    Backward computes a gradient for everything that requires one.

How the gain is estimated
    The times of these backward operations, in the watched steps, corrected for what watching costs.

How to fix
    Call requires_grad_(False) on the weights that this pass does not train, and True afterwards; detach() the fakes in
    the discriminator's step.

When it is wrong
    When a later step reads the gradients, as with accumulation over more than two steps.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import WEIGHTS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for gradients that nothing uses."""
    nothing = "Every gradient of the watched step is used."
    return found(evidence, trainer, WEIGHTS, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    return Words(
        title=f"{SHARE} of the training loop computes gradients that nothing uses, at {at(waste)}.",
        evidence=(
            f"{many(waste)} of this backward pass, for the calls at {lines(waste.lines[1:])}, make gradients that "
            "reach no optimizer step.",
        ),
        advice="Around that pass, call requires_grad_(False) on the weights that it does not train, or detach() its "
        "input.",
    )
