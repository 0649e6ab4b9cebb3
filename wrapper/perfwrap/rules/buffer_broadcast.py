"""DDP sends a model's buffers to all ranks before each forward pass.

What it finds
    DistributedDataParallel with broadcast_buffers=True (the default) and a model with buffers, where sending them
    takes 2 % of a step or more.

Why it costs
    Before each forward pass rank 0 sends all buffers to all ranks, and nothing is computed meanwhile. Running means
    of batch norm are small; tables that never change can be large.

How the saving is worked out
    Measured: the time of DDP's own method that sends them, on the rank with the shortest, as the others also wait for
    rank 0 in it.

How to fix
    broadcast_buffers=False, where each rank may keep its own running statistics (SyncBatchNorm, no batch norm).
    Constant tables: register_buffer is not needed for what never changes; broadcast_buffers=False leaves them alone.

When it is wrong
    When the ranks' statistics must be the same in each step and are not synchronised otherwise.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, named
from perfwrap.rules.spread import calls_per_step

NEEDS = ("trainer", "steady_steps", "recorder")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at what sending the buffers takes."""
    models = [model for model in evidence.spread_models(trainer) if model.broadcast_buffers and model.buffers]
    if not models:
        return Clear("No model's buffers are sent to other ranks.")
    model = models[0]
    if model.world_size == 1:
        return Clear("There is only one rank.")
    times = [
        other.buffer_broadcast_ns
        for rank in evidence.trainers
        for other in evidence.spread_models(rank)
        if other.buffer_broadcast_ns is not None
    ]
    if not times:
        return NotChecked(
            "What sending the buffers takes was not timed: too few steps, or another version of DDP."
        )
    share = min(times) * calls_per_step(evidence, trainer) / max(1.0, mean_step_ns(evidence, trainer))
    if share < QUIET_SHARE:
        return Clear(
            f"Sending {units.counted(model.buffers, 'buffer')} takes {units.share(share)} of a step."
        )
    return [
        Finding(
            title=f"{SHARE} of the time {named('DDP', model.where)} sends the model's buffers to all ranks.",
            share=share,
            saving=without(share),
            evidence=(
                f"{units.counted(model.buffers, 'buffer')}, {units.duration(min(times))} before each forward pass on "
                "the rank that waits least.",
            ),
            advice="Use broadcast_buffers=False, unless the ranks must share batch norm's running statistics in each "
            "step.",
            verdict="communication-bound",
            location=locate(model.where),
        )
    ]
