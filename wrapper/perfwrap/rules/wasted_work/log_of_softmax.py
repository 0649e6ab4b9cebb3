"""The logarithm of a softmax is computed in two steps.

What it finds
    torch.log of a softmax, also with a small number added or clamped in between. Reported from 3 % of the loop.

Why it costs
    log_softmax and cross_entropy compute it in one pass over the memory, forward and backward, and without the loss of
    precision for small probabilities.

How the gain is estimated
    Half of the time of both operations and their backward.

How to fix
    F.log_softmax(logits, dim) followed by nll_loss, or F.cross_entropy(logits, target).

When it is wrong
    When the probabilities themselves are also needed: then log_softmax(...).exp() is still faster.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import SOFTMAX
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for logarithms of a softmax."""
    nothing = "The watched step takes no logarithm of a softmax."
    return found(evidence, trainer, SOFTMAX, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    times = "once" if waste.count == 1 else units.counted(waste.count, "time")
    return Words(
        title=f"{SHARE} of the training loop can be saved by log_softmax, at {at(waste)}.",
        evidence=(
            f"A step takes the logarithm of a softmax {times}; log_softmax needs about half of the time of both.",
        ),
        advice="Use F.log_softmax, or F.cross_entropy on the logits; it is also more precise.",
    )
