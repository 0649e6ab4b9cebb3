"""A Python loop calls many small operations where a few large ones would do.

What it finds
    At least 32 calls of the same function at one line in a step, on different parts of the same tensor, with a mean
    below 120 µs, if they do not follow from each other, and what other functions do for that loop in each turn; of a
    recurrence, only what does not follow from the turn before. Also modules that are called one after the other on the
    same tensor, such as the heads of an attention layer: at least 12 calls of a function at one line, of which at least
    4 have equal shapes and do not follow from each other. Reported from 3 % of the training loop.

Why it costs
    Each operation costs some microseconds of Python and dispatch, whatever its size, and again in backward. One
    operation on the whole tensor pays this once.

How the gain is estimated
    The times of the loop's operations and of their backward, without one turn, times 0.9: the operation on the whole
    tensor also takes time.

How to fix
    Index or reshape the whole tensor: advanced indexing or gather instead of rows one by one, masks instead of classes
    one by one, torch.stack or scatter for results, torch.vmap for a function of one row. For modules on one tensor: one
    layer with the weights of all, whose result is split.

When it is wrong
    When the turns depend on each other through Python code, which the operations do not show. Checkpoints of joined
    modules have other names.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import LOOP
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, functions, lines, many

NEEDS = ("steady_steps", "operations")


ALL_AT_ONCE = (
    "Compute all turns at once: index, mask or reshape the whole tensor (gather, scatter, torch.vmap)."
)
AS_ONE_LAYER = (
    "Call one module for all of them: a layer with the weights of all, whose result is split (for attention: "
    "torch.nn.functional.scaled_dot_product_attention), or torch.func.stack_module_state with torch.vmap."
)
FROM_RECURRENCE = (
    "Compute these for all turns at once, before or after the loop: only the rest follows from the turn before. Call "
    "torch.nn.GRU or LSTM for a whole sequence instead of one call per time step."
)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for loops of small operations that do not depend on each other."""
    nothing = "No line of the watched step calls many small operations that one could replace."
    return found(evidence, trainer, LOOP, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    if waste.is_parallel:
        return Words(
            title=f"{SHARE} of the training loop is modules that are called one after the other on the same tensor, at "
            f"{at(waste)}.",
            evidence=(
                f"Of the calls at {lines(waste.lines)}, mostly {waste.count} at a time have equal shapes and do not "
                f"depend on each other: {functions(waste)} ({many(waste)} with backward).",
            ),
            advice=AS_ONE_LAYER,
        )
    return Words(
        title=f"{SHARE} of the training loop is a Python loop of small operations, at {at(waste)}.",
        evidence=(
            f"About {units.counted(waste.count, 'turn')} at {lines(waste.lines)} call {functions(waste)} "
            f"({many(waste)} with backward), which do not depend on each other.",
        ),
        advice=FROM_RECURRENCE if waste.in_recurrence else ALL_AT_ONCE,
    )
