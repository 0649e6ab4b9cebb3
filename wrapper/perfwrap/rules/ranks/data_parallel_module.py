"""A model is distributed over GPUs by DataParallel, in one process.

What it finds
    torch.nn.DataParallel on at least two GPUs.

Why it costs
    In each step one Python process copies the model to all GPUs, scatters the batch, gathers the outputs and launches
    the work of all GPUs. DistributedDataParallel avoids this; PyTorch recommends it even on one machine.

How the gain is estimated
    Not estimated: the cost of DataParallel was not measured. No share of the time is claimed.

How to fix
    Use one process per GPU: torchrun --nproc-per-node N, and DistributedDataParallel around the model.

When it is wrong
    When the work on the GPUs takes so long that launching and copying do not matter.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.spread_models import find_spread_models
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, Option

NEEDS = ("trainer", "steps", "recorder")


class Limits(Struct, frozen=True):
    """This rule has no thresholds."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for a DataParallel model on several GPUs."""
    devices = [
        model.devices or 0
        for model in evidence.get(find_spread_models, trainer)
        if model.kind == "DataParallel"
    ]
    if max(devices, default=0) < 2:
        return Clear("No model is distributed over several GPUs by DataParallel.")
    number = max(devices)
    return [
        Finding(
            title=f"One process drives {units.counted(number, 'GPU')} through nn.DataParallel.",
            share=0.0,
            evidence=(
                "The cost of copying the model and gathering its outputs in each step was not measured.",
            ),
            options=(
                Option(
                    f"Start one process per GPU (torchrun --nproc-per-node {number}) with DistributedDataParallel.",
                    (1.0, 1.0),
                ),
            ),
            confidence="inferred",
            min_severity="minor",
        )
    ]
