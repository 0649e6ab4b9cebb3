"""Gradients are exchanged after each micro-batch although they are only accumulated.

What it finds
    A model of DistributedDataParallel with several backward passes at one line for each optimizer step, none of them
    inside of no_sync(), where what is exchanged in vain takes 2 % of a step or more.

Why it costs
    Every backward pass outside of no_sync() sums the gradients over all ranks. Only the last one before the optimizer
    steps is needed: the sum of sums is the same.

How the saving is worked out
    DDP's own logger measures, in some of its steps, how long the exchange goes on after the backward pass has
    computed everything. All but one of these times per step go at best; half of that at worst. The rank with the
    shortest time counts, as the others also wait for it.

How to fix
    with model.no_sync(): around forward and backward of all micro-batches but the last one.

When it is wrong
    When the optimizer's steps that a program takes are not all seen (an optimizer of its own).
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.accumulation import find_accumulation
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.spread_models import has_no_sync
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place
from perfwrap.rules.spread import least_exchange_ns

NEEDS = ("trainer", "steady_steps", "recorder")

LEAST_HIDDEN = 0.5
"""Of what is exchanged in vain, what goes at worst: the next pass may hide a part of it today."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Count backward passes per optimizer step, and what DDP exchanges in them."""
    models = [model for model in evidence.spread_models(trainer) if (model.world_size or 0) > 1]
    if not models:
        return Clear("No model of DistributedDataParallel exchanges gradients with other ranks.")
    if has_no_sync(evidence.timeline, trainer):
        return Clear("no_sync() is used.")
    passes = find_accumulation(evidence.steps(trainer))
    if passes is None or passes.per_step < 2:
        return Clear("There is one backward pass for each optimizer step.")
    exchange = least_exchange_ns(evidence)
    if isinstance(exchange, NotChecked):
        return exchange
    vain = (passes.per_step - 1) * exchange
    share = min(1.0, vain / max(1.0, mean_step_ns(evidence, trainer)))
    if share < QUIET_SHARE:
        return Clear(f"Exchanging the gradients of every micro-batch takes {units.share(share)} of a step.")
    return [
        Finding(
            title=f"{SHARE} of the time gradients are exchanged in vain, after each of "
            f"{units.number(passes.per_step)} micro-batches at {place(passes.where, 'one line')}.",
            share=share,
            saving=(1.0 - share, 1.0 - share * LEAST_HIDDEN),
            evidence=(
                f"{units.number(passes.per_step)} backward passes for each optimizer step, none of them inside of "
                "no_sync().",
                f"An exchange goes on for {units.duration(exchange)} after the pass has computed everything, "
                "as DDP's own logger measured on the rank that waits least.",
            ),
            advice="Run forward and backward of all micro-batches but the last one inside of `with model.no_sync():`.",
            verdict="communication-bound",
            location=locate(passes.where),
            confidence="inferred",
        )
    ]
