"""Results that nothing uses.

What it finds
    Operations of forward and loss whose results reach no parameter update, no value that the host reads, and no state
    that outlives the step; and results of which only some rows are read, such as the logits of all positions where one
    is needed. They are reported from 3 % of the training loop.

Why it costs
    PyTorch computes what the program calls, whether or not anything depends on it.

How the gain is estimated
    The times of these operations and of their backward, in the watched steps; of partly used results the unused part.

How to fix
    Do not call it in training, or delete it. If only a part is used, take the part first: `head(h[:, -1])` instead of
    `head(h)[:, -1]`.

When it is wrong
    When another step uses the result: the proof covers the watched step and the one after it. Values that leave through
    NumPy, `data_ptr` or unknown extensions count as used.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import UNUSED
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for results that reach nothing."""
    nothing = "Every result of the watched step is used."
    return found(evidence, trainer, UNUSED, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    if waste.used is not None:
        return Words(
            title=f"{SHARE} of the training loop computes rows that nothing uses, at {at(waste)}.",
            evidence=(
                f"Of the results of {many(waste)}, backward included, only {units.share(waste.used)} are read.",
            ),
            advice=f"Take the part that is used before the operations at {lines(waste.lines)}, not after them.",
        )
    return Words(
        title=f"{SHARE} of the training loop computes results that nothing uses, at {at(waste)}.",
        evidence=(
            f"The results of {many(waste)}, at {lines(waste.lines)}, reach no parameter, no value that is read, and "
            "no state that outlives the step.",
        ),
        advice="Remove the call, or make it only when its result is needed.",
    )
