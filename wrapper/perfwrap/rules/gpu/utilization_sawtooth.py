"""GPU utilization swings up and down like a sawtooth.

What it finds
    Utilization samples that swing from below 30 % to above 70 % at least five times in the training loop, with at least
    15 % of the samples in each state. A note: other findings say what the GPU waits for.

Why it costs
    The GPU works in bursts and waits between them, usually for the next batches.

How the gain is estimated
    No gain is claimed here, because the rules about waits measure the same time.

How to fix
    See the other findings: workers, prefetching, fewer reads of values. A period of a few batches per worker suggests
    DataLoader workers that all deliver at once.

When it is wrong
    Steps of many seconds with validation between them also swing. Steps shorter than a sample are not visible.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import FINER, Gpu
from perfwrap.measures.gpu.own_gpus import find_own_gpus, gpu_samples
from perfwrap.measures.gpu.utilization_swings import HIGH, LOW, Swings, find_swings
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option

NEEDS = ("steady_steps", "gpu")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    high: float = HIGH
    low: float = LOW
    min_swings: int = 5
    """Swings that make a pattern."""
    min_state_share: float = 0.15
    """Share of the samples in each state; a few dips between epochs do not count."""


SERIES = (f"{FINER}utilization_share", "utilization_share")
"""The driver's own samples if they are finer, otherwise the monitor's."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for swings of the utilization."""
    gpus = [gpu for gpu in evidence.get(find_own_gpus, trainer) if gpu.utilization is not None]
    if not gpus:
        return NotChecked("Utilization of this training thread's GPU was not recorded.")
    found = [
        finding
        for gpu in gpus
        if (finding := _judge(gpu, _swings(evidence, trainer, gpu), limits)) is not None
    ]
    return found or Clear("Utilization does not swing between low and high.")


def _swings(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> Swings | None:
    """Return the swings of the finest series."""
    for metric in SERIES:
        samples = gpu_samples(evidence, trainer, gpu, metric)
        if not samples.is_empty():
            return find_swings(samples)
    return None


def _judge(gpu: Gpu, swings: Swings | None, limits: Limits) -> Finding | None:
    """Return the note about one GPU."""
    if (
        swings is None
        or swings.count < limits.min_swings
        or min(swings.low_share, swings.high_share) < limits.min_state_share
    ):
        return None
    return Finding(
        title=f"The utilization of {gpu.name} swings like a sawtooth, about every {units.duration(swings.period_ns)}.",
        share=0.0,
        evidence=(
            f"It rose from below {units.share(limits.low)} to above {units.share(limits.high)} "
            f"{units.counted(swings.count, 'time')}: "
            f"{units.share(swings.low_share)} of the samples are below, {units.share(swings.high_share)} above.",
        ),
        options=(
            Option(
                "See the other findings for what the GPU waits for at these intervals; usually it is data.",
                (1.0, 1.0),
            ),
        ),
        informational=True,
    )
