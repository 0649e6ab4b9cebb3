"""Values that only Python reads are computed in every step.

What it finds
    Operations of every step whose results reach a value that Python reads, but no loss, no parameter and no state that
    outlives the step: metrics, log values, a look at the model's output. They are reported from 5 % of the training
    loop.

Why it costs
    A metric of the model may run a whole forward pass of its own, and many small operations. A training that prints
    every 100 steps needs it every 100 steps.

How the gain is estimated
    The times of these operations in the watched steps. The reads themselves, and what Python does with the values, come
    on top.

How to fix
    Compute them only in the steps that log them, or every N steps.

When it is wrong
    When the program decides by the values: early stopping, a curriculum, a loss scale. If the values may come back into
    the training, as numbers, as tensors or as other operations, nothing is reported.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import METRICS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = 0.05
    """Cheap metrics, such as the accuracy of a batch, take less."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for operations of every step whose results only Python reads."""
    nothing = "No work of every step is only for values that Python reads."
    return found(evidence, trainer, METRICS, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    return Words(
        title=f"{SHARE} of the training loop computes values that only Python reads, in every step, at {at(waste)}.",
        evidence=(
            f"The results of {many(waste)}, at {lines(waste.lines)}, reach no loss, no parameter, and no state that "
            "outlives the step.",
        ),
        advice="If they are metrics, checks or log values, compute them only in some steps.",
    )
