"""Weights are cast to another type again, though they have not changed.

What it finds
    Casts of parameters that an earlier operation of the same step has made, mostly because each micro-batch enters
    autocast anew. They are reported from 3 % of the training loop.

Why it costs
    autocast keeps casts of weights until its outermost context ends. With gradient accumulation, each micro-batch casts
    all weights again.

How the gain is estimated
    The times of the second and later casts and of their backward, in the watched steps.

How to fix
    Enter torch.autocast once around the forward passes of all micro-batches of a step, with each backward() inside
    `torch.autocast(..., enabled=False)` or after it.

When it is wrong
    When the weights change between the micro-batches in a way that no operation shows.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import RECAST
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for casts of parameters that were made before in the step."""
    nothing = "No weight is cast twice in the watched step."
    return found(evidence, trainer, RECAST, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    return Words(
        title=f"{SHARE} of the training loop casts weights again that have not changed, at {at(waste)}.",
        evidence=(
            f"{many(waste)} of a step, backward included, repeat {units.counted(waste.count, 'cast')} of parameters.",
        ),
        advice="Enter torch.autocast once around the forward passes of all micro-batches of a step.",
    )
