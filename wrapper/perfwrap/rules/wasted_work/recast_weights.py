"""Weights are cast to another type again, though they have not changed.

What it finds
    Casts of parameters that an earlier operation of the same step has made, mostly because each micro-batch enters
    autocast anew. They are reported from 3 % of the training loop.

Why it costs
    autocast keeps casts of weights until its outermost context ends. With gradient accumulation, each micro-batch casts
    all weights again.

How the gain is estimated
    The times of the second and later casts in the watched steps. Their backward remains: each micro-batch casts its own
    gradients.

How to fix
    Enter torch.autocast once around all micro-batches of a step; contexts inside of it then keep the casts. Put each
    backward() into `torch.autocast(..., enabled=False)`, and leave the outer context before optimizer.step(): after it
    the casts would be those of the old weights.

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
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found

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
            f"A step repeats {units.counted(waste.count, 'cast')} of parameters; autocast forgets them at the end of "
            "its outermost context.",
        ),
        advice="Enter torch.autocast once around all micro-batches of a step, and leave it before optimizer.step(); "
        "contexts inside of it then keep the casts.",
    )
