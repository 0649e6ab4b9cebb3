"""A model is spread over GPUs by DataParallel, in one process.

What it finds
    torch.nn.DataParallel on two GPUs or more.

Why it costs
    In each step one Python process copies the model to all GPUs, scatters the batch and gathers the outputs, and
    launches the work of all GPUs itself. DistributedDataParallel does none of this; PyTorch advises it even on one
    machine.

How the saving is worked out
    It is not: what DataParallel costs was not measured. No share of the time is claimed.

How to fix
    One process per GPU: torchrun --nproc-per-node N, and DistributedDataParallel around the model.

When it is wrong
    When the work on the GPUs is so long that launching and copying do not matter.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding

NEEDS = ("trainer", "steps", "recorder")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for a model of DataParallel on several GPUs."""
    devices = [
        model.devices or 0 for model in evidence.spread_models(trainer) if model.kind == "DataParallel"
    ]
    if max(devices, default=0) < 2:
        return Clear("No model is spread over several GPUs by DataParallel.")
    number = max(devices)
    return [
        Finding(
            title=f"One process drives {units.counted(number, 'GPU')} through nn.DataParallel.",
            share=0.0,
            saving=(1.0, 1.0),
            evidence=(
                "What copying the model and gathering its outputs costs in each step was not measured.",
            ),
            advice=f"Start one process per GPU (torchrun --nproc-per-node {number}) with DistributedDataParallel.",
            confidence="inferred",
            at_least="minor",
        )
    ]
