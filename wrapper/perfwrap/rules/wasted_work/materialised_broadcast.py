"""Memory is filled with copies of a broadcast tensor and then reduced.

What it finds
    repeat, expand followed by contiguous or reshape, or cat, whose result is at least four times larger than what it
    copies, and which elementwise operations use until a sum, mean, norm, maximum or matrix product makes it small
    again; and differences of broadcast tensors that are squared or made absolute, and summed. Reported from 3 % of the
    training loop.

Why it costs
    All pairs are written to memory and read again, in forward and backward. Broadcasting needs no copy, and an
    algebraic form often needs no pairs.

How the gain is estimated
    At least the copies and their backward disappear; at best the whole chain up to the reduction.

How to fix
    Remove repeat and contiguous: operations broadcast by themselves. For distances use torch.cdist or
    `|a|² + |b|² - 2ab`; for a linear layer on concatenated pairs add `W₁a` and `W₂b`; for weighted sums use einsum.

When it is wrong
    When the copy is needed because it is written to later.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import BROADCAST
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for copies of broadcast tensors that are reduced afterwards."""
    nothing = "The watched step reduces no copies of broadcast tensors."
    return found(evidence, trainer, BROADCAST, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    if waste.other is None:
        return Words(
            title=f"{SHARE} of the training loop writes all pairwise differences to memory, at {at(waste)}.",
            evidence=(
                f"{many(waste)} with backward, at {lines(waste.lines)}, until the differences are reduced.",
            ),
            advice="Use torch.cdist, or `|a|² + |b|² - 2ab` with one matrix product: neither needs the differences.",
        )
    certain = (
        ""
        if waste.certain_share is None
        else f" The copies alone are {units.share(waste.certain_share)} of a step."
    )
    return Words(
        title=f"{SHARE} of the training loop computes on copies of a broadcast tensor, at {at(waste)}.",
        evidence=(
            f"{many(waste)} with backward, at {lines(waste.lines)}, until the copies are reduced.{certain}",
        ),
        advice="Let the operation broadcast without repeat, contiguous or cat; for distances use torch.cdist, for "
        "pairs through a linear layer add the two products.",
    )
