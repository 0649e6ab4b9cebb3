"""A GPU's link to the host, or to other GPUs, is slower than possible.

What it finds
    PCIe that never reached, while kernels ran, the generation or width (lanes) that GPU and slot support together;
    NVLinks that are down; at least 100 PCIe packets that were sent again during the run.

Why it costs
    Batches, gradients and checkpoints use these links. Half of the lanes means half of the speed.

How the gain is estimated
    No gain is claimed: exposed_transfer and exposed_communication measure the cost of transfers.

How to fix
    Reseat the card in a slot of full width; check risers and cables, the slot's setting in the BIOS, and dmesg for AER
    messages; restart if NVLinks are down.

When it is wrong
    An idle link is slower to save power: only samples while the GPU worked count. In a virtual machine the figures may
    be those of the host's bridge.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.gpu.gpu_state import Gpu
from perfwrap.measures.gpu.own_gpus import find_own_gpus, gpu_samples
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option
from perfwrap.timeline.lookup import samples_of

NEEDS = ("steady_steps", "gpu")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_utilization_share: float = 0.10
    """Mean utilization below which the link may have been asleep."""
    min_replays: int = 100
    """Packets sent again during the run; single ones are normal."""
    min_samples: int = 3
    """Samples of the link, one per second; with fewer, its best state may have been missed."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the links of the trainer's GPUs."""
    gpus = [
        gpu
        for gpu in evidence.get(find_own_gpus, trainer)
        if (gpu.utilization or 0.0) >= limits.min_utilization_share
    ]
    if not gpus:
        return NotChecked("None of the recorded GPUs is known to have worked for this training thread.")
    sampled = [gpu for gpu in gpus if _has_samples(evidence, trainer, gpu, limits)]
    if not sampled:
        return NotChecked("Too few samples of the GPU's links while it worked.")
    found = [finding for gpu in sampled if (finding := _judge(evidence, trainer, gpu, limits)) is not None]
    return found or Clear("The links of this GPU are as fast as possible.")


def _judge(evidence: Evidence, trainer: Trainer, gpu: Gpu, limits: Limits) -> Finding | None:
    """Return the problems of one GPU's links."""
    words = [
        text
        for text in (
            _below(evidence, trainer, gpu, "pcie_generation", "PCIe generation"),
            _below(evidence, trainer, gpu, "pcie_width", "PCIe lanes"),
            _below(evidence, trainer, gpu, "nvlinks_active", "active NVLinks", "nvlinks"),
            _replays(evidence, trainer, gpu, limits),
        )
        if text
    ]
    if not words:
        return None
    return Finding(
        title=f"The link of {gpu.name} is slower than possible.",
        share=0.0,
        evidence=tuple(words),
        options=(
            Option(
                "Check the slot, the riser and the cables, the slot's setting in the BIOS, and dmesg for "
                "messages about the link.",
                (1.0, 1.0),
            ),
        ),
        health=True,
    )


def _below(
    evidence: Evidence, trainer: Trainer, gpu: Gpu, metric: str, what: str, fact: str = ""
) -> str | None:
    """Return that a figure never reached its maximum; None if it did or is unknown."""
    values = gpu_samples(evidence, trainer, gpu, metric)["value"]
    most = evidence.get(find_facts, gpu.track).get(fact or f"{metric}_max", "")
    if values.is_empty() or not most.isdecimal():
        return None
    best = round(max(values.to_list()))
    is_down = best < int(most) and (best > 0 or bool(fact))
    return f"{what}: at most {best} of {most}." if is_down else None


def _replays(evidence: Evidence, trainer: Trainer, gpu: Gpu, limits: Limits) -> str | None:
    """Return that many packets were sent again during the run."""
    values = samples_of(evidence.timeline, _entity(evidence, gpu), "pcie_replays", trainer.host)["value"]
    more = round(max(values.to_list()) - min(values.to_list())) if values.len() > 1 else 0
    return (
        f"{units.counted(more, 'PCIe packet')} had to be sent again." if more >= limits.min_replays else None
    )


def _entity(evidence: Evidence, gpu: Gpu) -> str:
    """Return the monitors' name of the GPU, such as ``gpu/0``."""
    tracks = evidence.timeline.tracks
    return str(dict(tracks.select("id", "name").iter_rows())[gpu.track])


def _has_samples(evidence: Evidence, trainer: Trainer, gpu: Gpu, limits: Limits) -> bool:
    """Return whether there are enough samples of the link."""
    return any(
        gpu_samples(evidence, trainer, gpu, metric).height >= limits.min_samples
        for metric in ("pcie_generation", "pcie_width", "nvlinks_active")
    )
