"""Work that is done again in each step, though it never changes.

What it finds
    Operations of forward and loss that follow only from tensors and numbers that are the same in every step: not from
    the batch, not from trained parameters, not from random numbers. They are reported from 3 % of the training loop.

Why it costs
    A mask, a grid of anchors, a normalised adjacency matrix or a frozen embedding of constant inputs gives the same
    bytes each time. One computation before the loop is enough.

How the gain is estimated
    The times of these operations and of the Python code before them, in the watched steps, corrected for what
    watching costs. All of it disappears; caches and the allocator then serve only the rest.

How to fix
    Compute it in __init__ and keep it with register_buffer (so that it moves with the model), or before the training
    loop. If it depends on a shape, keep one result per shape in a dictionary.

When it is wrong
    When it changes later: in another epoch, by a schedule, for another shape. The proof covers the watched steps, of
    two windows at least 20 steps apart.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import UNCHANGING
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for operations whose inputs and results are the same in every step."""
    nothing = "No operation of the watched steps computes the same constants again."
    return found(evidence, trainer, UNCHANGING, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    what = " from Python or NumPy values" if waste.converted else ""
    return Words(
        title=f"{SHARE} of the training loop computes{what} what is the same in every step, at {at(waste)}.",
        evidence=(
            f"{many(waste)} of a step, at {lines(waste.lines)}, follow from nothing that changes; their results had "
            "the same bytes in all watched steps.",
        ),
        advice="Compute it once: in __init__ with register_buffer, or before the loop; per shape if it depends on one.",
    )
