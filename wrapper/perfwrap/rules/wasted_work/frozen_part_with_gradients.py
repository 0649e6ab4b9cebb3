"""Gradients are computed for a part of the model that is not trained.

What it finds
    Operations of backward whose results nothing uses, in a part that follows from the batch and from nothing that
    training changes: a frozen backbone whose parameters still require gradients. Reported from 3 % of the loop.

Why it costs
    Backward computes a gradient for everything that requires one, whether or not an optimizer has it.

How the gain is estimated
    The times of these backward operations, in the watched steps. Memory for the graph of that part is also saved.

How to fix
    Call requires_grad_(False) on the frozen part, or run it under torch.no_grad().

When it is wrong
    When the gradients are read in a later step, or the part is trained later: switch its gradients on then.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import FROZEN
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for unused gradients of parts that are not trained."""
    nothing = "No gradient of the watched step belongs to a part that is not trained."
    return found(evidence, trainer, FROZEN, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    return Words(
        title=f"{SHARE} of the training loop computes gradients of a part that is not trained, at {at(waste)}.",
        evidence=(
            f"{many(waste)} of backward, for {lines(waste.lines)}, make gradients that no optimizer and nothing else "
            "uses.",
        ),
        advice="Call requires_grad_(False) on that part, or run it under torch.no_grad().",
    )
