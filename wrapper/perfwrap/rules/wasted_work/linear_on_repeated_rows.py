"""A linear layer runs on rows that are copies or mixtures of fewer rows before.

What it finds
    A linear layer on rows taken by their numbers, on repeated rows, or a convolution with a kernel of size 1 on an
    upsampled picture, if nothing else reads these rows and there were at most half as many before. Reported from 3 % of
    the training loop.

Why it costs
    The layer computes the same rows several times, or mixtures of rows that it could have computed from fewer results.
    The order can be changed: layer first, then repeat, take or interpolate. The weights of an interpolation sum to 1,
    so that a bias stays, too.

How the gain is estimated
    The layer's time, forward and backward, for the rows that are saved; and the time to make the rows, in proportion to
    the layer's features behind and before it.

How to fix
    `layer(x)[index]` instead of `layer(x[index])`, `F.interpolate(layer(x), size)` instead of
    `layer(F.interpolate(x, size))`.

When it is wrong
    Results differ in the last bits, since sums are in another order.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import LATE
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for linear layers that could run before their rows are repeated."""
    nothing = "Each linear layer of the watched step runs on rows of its own."
    return found(evidence, trainer, LATE, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    assert waste.used is not None
    assert waste.other is not None
    layers = "A linear layer" if waste.count == 1 else units.counted(waste.count, "linear layer").capitalize()
    made = lines([waste.other]) or "an unknown line"
    return Words(
        title=f"{SHARE} of the training loop is a linear layer on repeated rows, at {at(waste)}.",
        evidence=(
            f"{layers} at {lines(waste.lines)} and nothing else reads what {made} makes; before it there are "
            f"{units.share(waste.used)} as many rows. {many(waste)} with backward.",
        ),
        advice=f"Call the layer first, then repeat, take or interpolate its result at {made}.",
    )
