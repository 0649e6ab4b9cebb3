"""Forward and backward pass are out of their usual proportion.

What it finds
    On a GPU, by its own times over the steady loop: a forward pass that takes longer than the backward pass, or a
    backward pass that takes more than three times the forward pass. On the CPU, where layers differ far more, a forward
    pass of three times the backward pass, or a backward pass of six times the forward pass. A note.

Why it costs
    It does not by itself. The backward pass of the same layers makes two products for each one of the forward pass, so
    it takes about twice as long; another proportion tells that one of them holds something else.

How the saving is worked out
    None is claimed: what the other thing is must be seen first.

How to fix
    Forward longer: is data prepared, logged or copied in it, are values read, are most layers frozen? Backward longer:
    activation checkpointing (three times is normal with it), a second order of gradients, hooks, an exchange of
    gradients that waits for other ranks.

When it is wrong
    Networks whose layers mostly look things up (embeddings) or whose products are small have proportions of their own.
    Losses with costly gradients belong to the backward pass.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import trains_on_gpu
from perfwrap.measures.phase_balance import PhaseBalance
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("phases", "steady_steps")

USUAL = 2.0
"""Products of a backward pass for one of the forward pass: for the weights, and for the inputs."""
ON_GPU = (1 / 1.2, 3.0)
"""Backward over forward, below and above which it is told: the forward pass is clearly the longer one, or the backward
pass takes more than what activation checkpointing makes of it. Above USUAL alone would be wrong: it is the usual."""
ON_CPU = (1 / 3, 6.0)
"""The same on the CPU: random numbers and pooling make forward passes long, small products backward passes. Healthy
loops there were measured at 0.57 to 3.4."""
LEAST_SHARE = 0.10
"""Of the loop, what both must take together on the CPU to be worth a word."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the proportion of both passes."""
    balance = evidence.phase_balance(trainer)
    if balance is None:
        if trains_on_gpu(evidence, trainer):
            return NotChecked("How long forward and backward passes took on the GPU was not measured.")
        return Clear("The loop has no forward pass beside a backward pass.")
    account = evidence.account(trainer)
    both = (balance.forward_ns + balance.backward_ns) / max(1, account.total_ns)
    if not balance.on_gpu and both < max(LEAST_SHARE, QUIET_SHARE):
        return Clear(f"Both passes together take {units.share(both)} of the loop.")
    least, most = ON_GPU if balance.on_gpu else ON_CPU
    if least <= balance.ratio <= most:
        return Clear(f"The backward pass takes {units.times(balance.ratio)} the forward pass.")
    return [_finding(balance)]


def _finding(balance: PhaseBalance) -> Finding:
    """Return the note."""
    forward, backward = units.duration(balance.forward_ns), units.duration(balance.backward_ns)
    where = "on the GPU" if balance.on_gpu else "on the CPU"
    if balance.ratio < 1:
        title = f"The forward pass takes {units.times(1 / balance.ratio)} as long as the backward pass."
        advice = "See what else runs in the forward pass: preparing data, logging, reading values, or frozen layers."
    else:
        title = f"The backward pass takes {units.times(balance.ratio)} as long as the forward pass."
        advice = (
            "See what else runs in the backward pass: checkpointing, hooks, second-order gradients, waiting."
        )
    return Finding(
        title=title,
        share=0.0,
        saving=(1.0, 1.0),
        evidence=(
            f"In the steady loop: forward {forward}, backward {backward} {where}; {units.times(USUAL)} is usual.",
        ),
        advice=advice,
        benign=True,
    )
