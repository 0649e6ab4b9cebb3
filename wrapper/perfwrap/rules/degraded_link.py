"""A GPU's link to the host, or to other GPUs, is slower than it should be.

What it finds
    PCIe that never reached, while kernels ran, the generation or the width (lanes) that the GPU and its slot can do
    together; NVLinks that are down; PCIe packets that had to be sent again, 100 or more during the run.

Why it costs
    Batches, gradients and checkpoints pass through these links. Half of the lanes is half of the speed.

How the saving is worked out
    None is claimed: exposed_transfer and exposed_communication measure what transfers cost.

How to fix
    Sit the card firmly in a slot of full width, look at risers and cables, at the slot's setting in the firmware
    (BIOS), and at dmesg for AER messages; restart where NVLinks are down.

When it is wrong
    An idle link is slower to save power: only what was seen while the GPU worked counts. In a virtual machine the
    figures can be those of the host's bridge.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu import Gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "gpu")

WORKED = 0.10
"""Mean utilisation below which a link may have slept all the time."""
MANY_REPLAYS = 100
"""Packets sent again during the run; single ones are ordinary."""
LEAST_LOOKS = 3
"""Looks at the link, one a second, below which its best state may have been missed."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the links of the trainer's GPUs."""
    gpus = [gpu for gpu in evidence.own_gpus(trainer) if (gpu.utilization or 0.0) >= WORKED]
    if not gpus:
        return NotChecked("None of the GPUs that were watched is known to have worked for this trainer.")
    looked = [gpu for gpu in gpus if _looks(evidence, trainer, gpu)]
    if not looked:
        return NotChecked("The state of the GPU's links was not sampled often enough while it worked.")
    found = [finding for gpu in looked if (finding := _judge(evidence, trainer, gpu)) is not None]
    return found or Clear("The links of this trainer's GPU are as fast as they can be.")


def _judge(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> Finding | None:
    """Return what is wrong with the links of one GPU."""
    words = [
        text
        for text in (
            _below(evidence, trainer, gpu, "pcie_generation", "PCIe generation"),
            _below(evidence, trainer, gpu, "pcie_width", "PCIe lanes"),
            _below(evidence, trainer, gpu, "nvlinks_active", "NVLinks at work", "nvlinks"),
            _replays(evidence, trainer, gpu),
        )
        if text
    ]
    if not words:
        return None
    return Finding(
        title=f"{gpu.name} is linked more slowly than it should be.",
        share=0.0,
        saving=(1.0, 1.0),
        evidence=tuple(words),
        advice="Look at the slot, the riser and the cables, at the firmware's setting of the slot, and at dmesg for "
        "messages about the link.",
        health=True,
    )


def _below(
    evidence: Evidence, trainer: Trainer, gpu: Gpu, metric: str, what: str, fact: str = ""
) -> str | None:
    """Return that a figure never reached what it could be; None where it did or is not known."""
    values = evidence.gpu_samples(trainer, gpu, metric)["value"]
    most = evidence.facts(gpu.track).get(fact or f"{metric}_max", "")
    if values.is_empty() or not most.isdigit():
        return None
    best = round(max(values.to_list()))
    is_down = best < int(most) and (best > 0 or bool(fact))
    return f"{what}: {best} at most, where {most} are possible." if is_down else None


def _replays(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> str | None:
    """Return that many packets had to be sent again during the run."""
    values = evidence.series(_entity(evidence, gpu), "pcie_replays", trainer.host)["value"]
    more = round(max(values.to_list()) - min(values.to_list())) if values.len() > 1 else 0
    return f"{units.counted(more, 'PCIe packet')} had to be sent again." if more >= MANY_REPLAYS else None


def _entity(evidence: Evidence, gpu: Gpu) -> str:
    """Return what the monitors call the GPU, as ``gpu/0``."""
    tracks = evidence.timeline.tracks
    return str(dict(tracks.select("id", "name").iter_rows())[gpu.track])


def _looks(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> bool:
    """Say whether the link was looked at often enough."""
    return any(
        evidence.gpu_samples(trainer, gpu, metric).height >= LEAST_LOOKS
        for metric in ("pcie_generation", "pcie_width", "nvlinks_active")
    )
