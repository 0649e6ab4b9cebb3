"""The GPU's utilisation goes up and down like the teeth of a saw.

What it finds
    Samples of the utilisation that swing from below 30 % to above 70 % five times or more in the training loop, with
    15 % of the samples or more in each state. A note: other findings say what it waits for.

Why it costs
    The GPU works in bursts and waits between them, most often for the next batches.

How the saving is worked out
    None is claimed here, as the rules about waiting measure the same time.

How to fix
    What the other findings say: workers, prefetching, fewer reads of values. A period as long as a few batches per
    worker speaks for DataLoader workers that all deliver at once.

When it is wrong
    Steps of many seconds with a validation between them swing as well. Steps shorter than a sample do not show.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu import FINER, Gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.utilization_swings import HIGH, LOW, Swings, find_swings
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "gpu")

MANY = 5
"""Swings that make a pattern."""
ENOUGH = 0.15
"""Share of the samples in either state; a few dips between epochs are none of it."""
SERIES = (f"{FINER}utilization_share", "utilization_share")
"""What the driver sampled by itself, where that is finer, and what was asked."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for swings of the utilisation."""
    gpus = [gpu for gpu in evidence.own_gpus(trainer) if gpu.utilization is not None]
    if not gpus:
        return NotChecked("The utilisation of this trainer's GPU was not sampled.")
    found = [finding for gpu in gpus if (finding := _judge(gpu, _swings(evidence, trainer, gpu))) is not None]
    return found or Clear("The utilisation does not swing between nearly nothing and nearly all.")


def _swings(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> Swings | None:
    """Return the swings of the finest series that there is."""
    for metric in SERIES:
        samples = evidence.gpu_samples(trainer, gpu, metric)
        if not samples.is_empty():
            return find_swings(samples)
    return None


def _judge(gpu: Gpu, swings: Swings | None) -> Finding | None:
    """Return the note about one GPU."""
    if swings is None or swings.count < MANY or min(swings.low_share, swings.high_share) < ENOUGH:
        return None
    return Finding(
        title=f"The utilisation of {gpu.name} swings like a sawtooth, about every {units.duration(swings.period_ns)}.",
        share=0.0,
        saving=(1.0, 1.0),
        evidence=(
            f"It rose from below {units.share(LOW)} to above {units.share(HIGH)} "
            f"{units.counted(swings.count, 'time')}: "
            f"{units.share(swings.low_share)} of the samples are below, {units.share(swings.high_share)} above.",
        ),
        advice="See what the GPU waits for at these intervals in the other findings; most often it is data.",
        benign=True,
    )
