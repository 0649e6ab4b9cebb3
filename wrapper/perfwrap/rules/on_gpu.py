"""What the rules about a GPU and its host share."""

from __future__ import annotations

from perfwrap.measures.account.loop_figures import gpu_utilization, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.models import find_devices
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import find_transfers
from perfwrap.rules.kernel_record import recorded
from perfwrap.rules.model import NotChecked

ON_CPU = NotChecked("The model ran on the CPU.")
UNKNOWN_IDLE = "GPU idle time unknown; run with monitors"


def stayed_on_cpu(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether the models were on the CPU and nothing was copied to another device."""
    return (
        evidence.get(find_devices, trainer) == {"cpu"}
        and not trains_on_gpu(evidence, trainer)
        and not evidence.get(find_transfers, trainer)
    )


def idle_share(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return the minimum share of time in which the GPU was idle; None if not recorded."""
    gpu = recorded(evidence, trainer)
    if not isinstance(gpu, NotChecked):
        return max(0.0, 1.0 - gpu.busy_share)
    utilization = gpu_utilization(evidence)
    return None if utilization is None else max(0.0, 1.0 - utilization)
