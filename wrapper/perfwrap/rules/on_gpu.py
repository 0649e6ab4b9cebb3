"""What the rules share that are about a GPU and what the host does with it."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import gpu_utilization, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded
from perfwrap.rules.model import NotChecked

ON_CPU = NotChecked("The model ran on the CPU.")
UNKNOWN_IDLE = "how idle the GPU was is not known (run with monitors)"


def stayed_on_cpu(evidence: Evidence, trainer: Trainer) -> bool:
    """Say whether the trainer's models are known to have been on the CPU, and nothing was copied elsewhere."""
    facts = evidence.facts(trainer.process).items()
    devices = {value for key, value in facts if key.startswith("model/") and key.endswith("/device")}
    return devices == {"cpu"} and not trains_on_gpu(evidence, trainer) and not evidence.transfers(trainer)


def idle_share(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return the share of the time in which the trainer's GPU was idle, at least; None where nobody watched."""
    gpu = recorded(evidence, trainer)
    if not isinstance(gpu, NotChecked):
        return max(0.0, 1.0 - gpu.busy_share)
    utilization = gpu_utilization(evidence)
    return None if utilization is None else max(0.0, 1.0 - utilization)
