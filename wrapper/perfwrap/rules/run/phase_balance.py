"""Forward and backward pass have an unusual ratio.

What it finds
    On a GPU, by GPU times over the steady loop: a forward pass that takes longer than the backward pass, or a backward
    pass of more than three times the forward pass. On the CPU, where layers vary more: a forward pass of three times
    the backward pass, or a backward pass of six times the forward pass. A note.

Why it costs
    It costs nothing by itself. For each matrix product of the forward pass, the backward pass has two, so it takes
    about twice as long. Another ratio means that one of them contains something else.

How the gain is estimated
    No gain is claimed: the cause must be found first.

How to fix
    Forward pass longer: does it prepare, log or copy data, read values, or have mostly frozen layers? Backward pass
    longer: activation checkpointing (three times is normal with it), second-order gradients, hooks, a gradient exchange
    that waits for other ranks.

When it is wrong
    Networks with mostly lookups (embeddings) or small matrix products have other ratios. Losses with expensive
    gradients belong to the backward pass.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.functional_models import find_model_gaps
from perfwrap.measures.run.phase_balance import PhaseBalance, find_phase_balance
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, Answer, Clear, Finding, NotChecked, Option

NEEDS = ("phases", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    usual_ratio: float = 2.0
    """Matrix products of the backward pass per one of the forward pass: for the weights and for the inputs."""
    min_share: float = 0.10
    """Minimum share of the loop for both passes together on the CPU."""


ON_GPU = (1 / 1.2, 3.0)
"""Backward over forward, below and above which it is reported: a clearly longer forward pass, or a backward pass longer
than with activation checkpointing."""
ON_CPU = (1 / 3, 6.0)
"""The same on the CPU: random numbers and pooling make forward passes longer, small products backward passes. Healthy
loops there have 0.57 to 3.4."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the ratio of both passes."""
    balance = evidence.get(find_phase_balance, trainer)
    if balance is None:
        if trains_on_gpu(evidence, trainer):
            return NotChecked("GPU times of forward and backward pass were not measured.")
        return Clear("The loop does not have both a forward and a backward pass.")
    account = evidence.get(find_account, trainer)
    both = (balance.forward_ns + balance.backward_ns) / max(1, account.total_ns)
    if not balance.on_gpu and both < max(limits.min_share, limits.min_reported_share):
        return Clear(f"Both passes together take {units.share(both)} of the loop.")
    least, most = ON_GPU if balance.on_gpu else ON_CPU
    if evidence.get(find_model_gaps, trainer):
        return Clear("The model computes outside modules, so its forward pass was not recorded.")
    if least <= balance.ratio <= most:
        return Clear(f"The backward pass takes {units.times(balance.ratio)} as long as the forward pass.")
    return [_finding(balance, limits)]


def _finding(balance: PhaseBalance, limits: Limits) -> Finding:
    """Return the note."""
    forward, backward = units.duration(balance.forward_ns), units.duration(balance.backward_ns)
    where = "on the GPU" if balance.on_gpu else "on the CPU"
    if balance.ratio < 1:
        title = f"The forward pass takes {units.times(1 / balance.ratio)} as long as the backward pass."
        advice = "Check what else runs in the forward pass: data preparation, logging, reads of values, frozen layers."
    else:
        title = f"The backward pass takes {units.times(balance.ratio)} as long as the forward pass."
        advice = (
            "Check what else runs in the backward pass: checkpointing, hooks, second-order gradients, waits."
        )
    return Finding(
        title=title,
        share=0.0,
        evidence=(
            f"In the steady loop: forward {forward}, backward {backward} {where}; "
            f"{units.times(limits.usual_ratio)} is usual.",
        ),
        options=(Option(advice, (1.0, 1.0)),),
        informational=True,
    )
