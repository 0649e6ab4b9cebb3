"""DDP broadcasts the model's buffers to all ranks before each forward pass.

What it finds
    DistributedDataParallel with broadcast_buffers=True (the default) and a model with buffers, if the broadcast takes
    at least 2 % of a step.

Why it costs
    Before each forward pass rank 0 sends all buffers to all ranks, and nothing is computed meanwhile. The running means
    of batch norm are small; constant tables can be large.

How the gain is estimated
    Measured: the time of the DDP method that sends them, on the rank with the shortest time, because the others also
    wait for rank 0 in it.

How to fix
    broadcast_buffers=False, if each rank may keep its own running statistics (SyncBatchNorm, no batch norm). Constant
    tables do not need register_buffer; broadcast_buffers=False does not send them.

When it is wrong
    When the statistics must be equal on all ranks in each step and are not synchronized otherwise.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.spread_models import find_spread_models
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    named,
)
from perfwrap.rules.ranks._spread_models import calls_per_step

NEEDS = ("trainer", "steady_steps", "recorder")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the time of the buffer broadcast."""
    models = [
        model
        for model in evidence.get(find_spread_models, trainer)
        if model.broadcast_buffers and model.buffers
    ]
    if not models:
        return Clear("No model's buffers are sent to other ranks.")
    model = models[0]
    if model.world_size == 1:
        return Clear("There is only one rank.")
    times = [
        other.buffer_broadcast_ns
        for rank in evidence.get(find_trainers)
        for other in evidence.get(find_spread_models, rank)
        if other.buffer_broadcast_ns is not None
    ]
    if not times:
        return NotChecked("The buffer broadcast was not timed: too few steps, or another version of DDP.")
    share = min(times) * calls_per_step(evidence, trainer) / max(1.0, mean_step_ns(evidence, trainer))
    if share < limits.min_reported_share:
        return Clear(
            f"The broadcast of {units.counted(model.buffers, 'buffer')} takes {units.share(share)} of a step."
        )
    return [
        Finding(
            title=f"{SHARE} of the time {named('DDP', model.where)} broadcasts the model's buffers to all ranks.",
            share=share,
            evidence=(
                f"{units.counted(model.buffers, 'buffer')}, {units.duration(min(times))} before each forward pass on "
                "the rank that waits least.",
            ),
            options=(
                Option(
                    "Pass broadcast_buffers=False, unless the ranks must share batch norm's running statistics in each "
                    "step.",
                    without(share),
                ),
            ),
            verdict="communication-bound",
            location=locate(model.where),
        )
    ]
