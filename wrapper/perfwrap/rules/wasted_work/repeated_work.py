"""The same operations run again on the same values within one step.

What it finds
    Operations that get the same function, the same numbers and the same tensors as an earlier operation of the step,
    with their backward; backward passes through nodes that an earlier pass has visited; calls of torch.autograd.grad
    that mostly repeat an earlier one for other inputs, as the derivatives of a network by x and by t; state_dict() or
    detach() of the same tensors several times. They are reported from 3 % of the training loop.

Why it costs
    The second result equals the first one. A forward pass for the loss and another one for a metric, or a similarity
    matrix in each of two loss terms, cost twice.

How the gain is estimated
    The times of the second and later computations and of their backward, in the watched steps, corrected for what
    watching costs.

How to fix
    Keep the first result in a variable, or pass it on. If two losses each run backward through the same part, add them
    and call backward once. Derivatives of the same outputs by several inputs need one call:
    ``u_t, u_x = torch.autograd.grad(u, (t, x), ...)``.

When it is wrong
    Results are compared by their inputs, not by their bytes: an operation with hidden state that its schema does not
    declare would count as repeated. Random operations, activation checkpointing and memory that is written to later
    are left out.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import REPEATED
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines, many

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for operations on the same values as an earlier one of the step."""
    nothing = "No operation of the watched steps runs twice on the same values."
    return found(evidence, trainer, REPEATED, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    if waste.in_backward and waste.other is not None:
        first = lines([waste.other])
        is_one = waste.other in waste.lines
        return Words(
            title=f"{SHARE} of the training loop computes derivatives at {at(waste)} "
            + ("more than once." if is_one else f"that {first} has computed."),
            evidence=(
                f"{many(waste)} of a step, backward included: torch.autograd.grad goes through the same part of the "
                "graph with the same gradients, for other inputs.",
            ),
            advice=f"Call torch.autograd.grad once, at {first}, with "
            + ("all its inputs." if is_one else "the inputs of both lines."),
        )
    if waste.in_backward:
        return Words(
            title=f"{SHARE} of the training loop repeats backward through the same part, at {at(waste)}.",
            evidence=(
                f"{units.counted(waste.count, 'backward pass', 'backward passes')} of a step visit the same nodes; "
                "nothing reads the gradients in between.",
            ),
            advice="Add the losses and call backward() once: the gradients are the same.",
        )
    if waste.other is not None:
        first = lines([waste.other])
        title = f"{SHARE} of the training loop computes at {at(waste)} again what {first} has computed."
        advice = f"Keep the result of {first} and use it at {at(waste)}."
    else:
        title = f"{SHARE} of the training loop repeats the same work at {at(waste)}."
        advice = "Call it once per step and keep the result."
    return Words(
        title=title,
        evidence=(
            f"{many(waste)} of a step, backward included, {_where(waste)}get the same function, numbers and tensors as "
            "earlier ones.",
        ),
        advice=advice,
    )


def _where(waste: Waste) -> str:
    """Return the lines where the title names only the first of them."""
    return f"at {lines(waste.lines)}, " if len(waste.lines) > 1 else ""
