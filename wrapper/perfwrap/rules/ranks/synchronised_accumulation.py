"""Gradients are exchanged after every micro-batch although they are only accumulated.

What it finds
    A DistributedDataParallel model with several backward passes at one line per optimizer step, none of them inside
    no_sync(), if the unneeded exchange takes at least 2 % of a step.

Why it costs
    Every backward pass outside no_sync() sums the gradients over all ranks. Only the last one before the optimizer step
    is needed: the sum of sums is the same.

How the gain is estimated
    DDP's own logger measures in some steps how long the exchange continues after the backward pass has computed
    everything. At best all but one of these times per step disappear, at worst half of that. The rank with the shortest
    time counts, because the others also wait for it.

How to fix
    Use with model.no_sync(): around forward and backward of all micro-batches except the last one.

When it is wrong
    When not all optimizer steps of the program are recorded (a custom optimizer).
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.accumulation import find_accumulation
from perfwrap.measures.ranks.spread_models import find_spread_models, has_no_sync
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    place,
)
from perfwrap.rules.ranks._spread_models import least_exchange_ns

NEEDS = ("trainer", "steady_steps", "recorder")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_saved_share: float = 0.5
    """Share of the unneeded exchange that is saved at worst: the next pass may already hide a part of it."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Count backward passes per optimizer step, and the time that DDP exchanges gradients in them."""
    models = [model for model in evidence.get(find_spread_models, trainer) if (model.world_size or 0) > 1]
    if not models:
        return Clear("No DistributedDataParallel model exchanges gradients with other ranks.")
    if has_no_sync(evidence.timeline, trainer):
        return Clear("no_sync() is used.")
    passes = find_accumulation(evidence.get(find_steps, trainer))
    if passes is None or passes.per_step < 2:
        return Clear("There is one backward pass per optimizer step.")
    exchange = least_exchange_ns(evidence)
    if isinstance(exchange, NotChecked):
        return exchange
    unneeded = (passes.per_step - 1) * exchange
    share = min(1.0, unneeded / max(1.0, mean_step_ns(evidence, trainer)))
    if share < limits.min_reported_share:
        return Clear(f"Exchanging gradients after every micro-batch takes {units.share(share)} of a step.")
    return [
        Finding(
            title=f"{SHARE} of the time is an unneeded exchange of gradients, after each of "
            f"{units.number(passes.per_step)} micro-batches at {place(passes.where, 'one line')}.",
            share=share,
            evidence=(
                f"{units.number(passes.per_step)} backward passes per optimizer step, none of them inside "
                "no_sync().",
                f"An exchange continues for {units.duration(exchange)} after the pass has computed everything "
                "(measured by DDP's own logger, on the rank that waits least).",
            ),
            options=(
                Option(
                    "Run forward and backward of all micro-batches except the last one inside `with model.no_sync():`.",
                    (1.0 - share, 1.0 - share * limits.min_saved_share),
                ),
            ),
            verdict="communication-bound",
            location=locate(passes.where),
            confidence="inferred",
        )
    ]
